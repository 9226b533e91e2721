"""heddle doctor: what is here, what is in force, what is unsafe and why.

Exit code 0 / 1 / 2: device usable / not / unknown.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import sys
from collections.abc import Collection

import numpy as np

import heddle
from heddle import _heddle
from heddle.cli import torch_faults

USABLE, NOT_USABLE, UNKNOWN = 0, 1, 2


def add_parser(commands) -> None:
    parser = commands.add_parser(
        "doctor", help="devices, versions, limits, environment, what is unsafe and why"
    )
    parser.add_argument("--device", default="", help="its name; else the device of programs that name none")
    parser.add_argument("--json", action="store_true")
    parser.set_defaults(execute=execute)


def versions() -> dict[str, str]:
    """Of Heddle, of what it stands on, and of the libraries it is used beside; absent ones are left out."""
    found = {"heddle": heddle.__version__, "python": platform.python_version(), "system": platform.platform()}
    for package in ("numpy", "onnx", "onnxruntime", "torch"):
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def computes_right(device: heddle.Device) -> str | None:
    """None when a small model gives the right numbers on the device, else what went wrong."""
    graph = heddle.GraphBuilder("doctor")
    x = graph.input("x", "f32", ["batch", 4])
    weight = np.arange(12, dtype=np.float32).reshape(4, 3)
    graph.output(graph.add("MatMul", x, graph.constant(weight)), "y")
    value = np.arange(8, dtype=np.float32).reshape(2, 4)
    got = graph.build(device)(value)
    return None if np.allclose(got, value @ weight) else f"a matrix product came out as {got.tolist()}"


def guard_state() -> dict:
    """Of the guard against Apple's encoder race, in this process."""
    report = heddle.guard.report()
    if not report:
        return {"state": "not loaded", "classes": 0, "replaced_by_others": 0}
    return {
        "state": "active" if heddle.guard.is_active() else "loaded, not active",
        "classes": len(report.get("classes", [])),
        "replaced_by_others": heddle.guard.replaced_by_others(),
    }


def find_guard_risks(device: str, guard: dict, installed: Collection[str]) -> list[dict[str, str]]:
    """What other libraries of the process may do to it on a Mac's GPU. Heddle's own driver needs no guard."""
    risks = []
    if device == "metal" and "torch" in installed and guard["state"] != "active":
        risks.append(
            {
                "what": f"PyTorch is installed, and the guard is {guard['state']}",
                "why": "threads that share an encoder of another library's may crash in Apple's GPU driver",
                "do": "start the program with heddle guard, or call heddle.guard.install() before torch is "
                "imported",
            }
        )
    if guard["replaced_by_others"]:
        risks.append(
            {
                "what": f"{guard['replaced_by_others']} methods of the guard were replaced",
                "why": "another library put its own in their place, and the guard does not see those calls",
                "do": "load the guard after that library, or do without one of the two",
            }
        )
    return risks


def find_risks(device: heddle.Device) -> list[dict[str, str]]:
    """What may go wrong in this process or on this machine, and what to do."""
    risks = []
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if device.threads > cores:
        risks.append(
            {
                "what": f"{device.threads} computing threads on {cores} cores",
                "why": "threads that wait for each other's core make every call slower",
                "do": "unset HEDDLE_THREADS, or open the device with threads=0",
            }
        )
    if int(os.environ.get("OMP_NUM_THREADS") or cores) > cores:
        risks.append(
            {
                "what": f"OMP_NUM_THREADS is {os.environ['OMP_NUM_THREADS']} on {cores} cores",
                "why": "other OpenMP libraries of the process (PyTorch, say) will start more threads "
                "than there are cores",
                "do": "lower OMP_NUM_THREADS; Heddle itself does not use it",
            }
        )
    if device.stats()["memory_limit"] > device.stats()["recommended_max_memory"]:
        risks.append(
            {
                "what": "the memory limit is above what the device recommends",
                "why": "the system may kill the process before Heddle refuses an allocation",
                "do": "lower HEDDLE_MEMORY_FRACTION",
            }
        )
    return risks


def examine(name: str) -> dict:
    """The whole report; `status` is 0, 1 or 2."""
    oldest, newest, operators = _heddle.onnx_support()
    report: dict = {
        "device": name,
        "versions": versions(),
        "onnx": {"oldest_opset": oldest, "newest_opset": newest, "operators": operators},
        "environment": [
            {"name": variable, "meaning": meaning, "value": value}
            for variable, meaning, value in heddle.environment()
        ],
        "devices": list(heddle.Device.names()),
        "missing_devices": dict(heddle.Device.missing()),
        "guard": guard_state(),
        "pytorch": torch_faults.examine(torch_faults.installed_version()),
        "risks": [],
    }
    if name and name.split(":")[0] not in [*report["devices"], *report["missing_devices"]]:
        report |= {
            "status": UNKNOWN,
            "verdict": f"'{name}' is no device of this build; there are {', '.join(report['devices'])}",
        }
        return report
    try:
        device = heddle.Device(name)
        wrong = computes_right(device)
    except heddle.Error as error:
        return report | {"status": NOT_USABLE, "verdict": str(error)}
    stats = device.stats()
    report |= {"device": device.name, "description": device.description}
    report["limits"] = {
        "threads": device.threads,
        "calls in flight": device.in_flight,
        "threads of eager operators at once": device.slices,
        "streams": device.streams,
        "memory limit, bytes": stats["memory_limit"],
        "recommended memory, bytes": stats["recommended_max_memory"],
    }
    report["facts"] = dict(device.facts)
    report["defences"] = [{"fault": fault, "defence": defence} for fault, defence in device.defences]
    if device.name == "metal":
        report["defences_shown_on"] = "a double of Metal on Linux, not on a Mac"
    guard_risks = find_guard_risks(device.name, report["guard"], report["versions"])
    report["risks"] = find_risks(device) + guard_risks
    if wrong:
        return report | {"status": NOT_USABLE, "verdict": wrong}
    return report | {"status": USABLE, "verdict": "usable: a model was compiled and gave the right numbers"}


def print_report(report: dict) -> None:
    print(f"{report['device']}: {report['verdict']}")
    if "description" in report:
        print(f"  {report['description']}")
    print("versions")
    for package, version in report["versions"].items():
        print(f"  {package:12s} {version}")
    onnx = report["onnx"]
    print(
        f"reads ONNX opsets {onnx['oldest_opset']} to {onnx['newest_opset']}, "
        f"{len(onnx['operators'])} operators of ai.onnx"
    )
    for missing, why in report["missing_devices"].items():
        print(f"not on this machine: {missing}: {why}")
    print("limits")
    for limit, value in report.get("limits", {}).items():
        print(f"  {limit:26s} {value}")
    for fact, value in report.get("facts", {}).items():
        print(f"  {fact:26s} {value}")
    if report.get("defences"):
        print("faults and limits known of this version, and what is done about each")
        if "defences_shown_on" in report:
            print(f"  (shown on {report['defences_shown_on']})")
    for known in report.get("defences", []):
        print(f"  {known['fault']}\n    defence: {known['defence']}")
    guard = report["guard"]
    detail = f", {guard['classes']} classes of Apple's driver" if guard["state"] == "active" else ""
    print(f"guard against Apple's encoder race: {guard['state']}{detail}")
    torch_faults.print_section(report["pytorch"])
    print("environment")
    for variable in report["environment"]:
        print(f"  {variable['name']:26s} {variable['value'] or '(not set)':12s} {variable['meaning']}")
    print("risks" if report["risks"] else "risks: none found")
    for risk in report["risks"]:
        print(f"  {risk['what']}\n    because {risk['why']}\n    do: {risk['do']}")


def execute(options) -> int:
    report = examine(options.device)
    if options.json:
        json.dump(report, sys.stdout, indent=1)
        print()
    else:
        print_report(report)
    return report["status"]
