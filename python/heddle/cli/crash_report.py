"""What a crashed program leaves behind: exit, last words, macOS's crash report; and the signature of it."""

from __future__ import annotations

import json
import re
import signal
from pathlib import Path

REPORTS = Path.home() / "Library" / "Logs" / "DiagnosticReports"
ADDRESS = re.compile(r"\bSIGNAL \d+ at (\(nil\)|0x[0-9a-f]+)")
SAID = re.compile(
    r"(failed assertion [`'\"].*?['\"]|-\[\w+ [\w:]+\]: .*|uncaught exception .*|Fatal Python error: .*)"
)
FAR = 0x10000  # addresses beyond are wild: they differ from run to run


def find_signal(returncode: int) -> int | None:
    """The signal that ended a program, also when it or a shell turned it into 128 + n."""
    number = -returncode if returncode < 0 else returncode - 128 if 128 < returncode < 160 else None
    return number if number in {int(each) for each in signal.Signals} else None


def shorten(address: int) -> str:
    return hex(address) if address < FAR else "a wild address"


def read_report(text: str) -> dict:
    """Process id, exception, address and the frames of the thread that crashed, of an .ips report."""
    body = json.loads(text.partition("\n")[2])  # the first line is a header of its own
    images = body.get("usedImages", [])
    thread: dict = next((t for t in body.get("threads", []) if t.get("triggered")), {})
    frames = []
    for frame in thread.get("frames", [])[:8]:
        index = frame.get("imageIndex", -1)
        image = images[index].get("name", "?") if 0 <= index < len(images) else "?"
        frames.append(f"{image} {frame.get('symbol', hex(frame.get('imageOffset', 0)))}")
    exception = body.get("exception", {})
    subtype = exception.get("subtype", "")
    found = re.search(r"at (0x[0-9a-fA-F]+)", subtype)
    return {
        "pid": body.get("pid"),
        "exception": " ".join(filter(None, (exception.get("type"), exception.get("signal")))),
        "address": shorten(int(found.group(1), 16)) if found else None,
        "frames": frames,
    }


def find_report(pid: int, since: float, folder: Path = REPORTS) -> dict | None:
    """macOS's report of that process, when it has written one."""
    if not folder.is_dir():
        return None
    for path in sorted(folder.glob("*.ips"), key=lambda p: p.stat().st_mtime, reverse=True):
        if path.stat().st_mtime < since - 1:
            break
        try:
            report = read_report(path.read_text(encoding="utf-8", errors="replace"))
        except (ValueError, OSError):
            continue  # still being written, or of another kind
        if report["pid"] == pid:
            return report
    return None


def sign(returncode: int, output: str, report: dict | None = None) -> str:
    """One line that two crashes of one cause share."""
    number = find_signal(returncode)
    words = [signal.Signals(number).name if number else f"exit code {returncode}"]
    if report:
        words += ["at " + report["address"]] if report["address"] else []
        words += ["in " + " < ".join(report["frames"][:3])] if report["frames"] else []
        return " ".join(words)
    address = ADDRESS.search(output)
    # After an abort the address is not an address but the sender's process id.
    if address and number != signal.SIGABRT:
        words.append("at " + shorten(0 if address.group(1) == "(nil)" else int(address.group(1), 16)))
    said = SAID.findall(output)
    if said:
        words.append(re.sub(r"0x[0-9a-f]+", "0x...", said[-1])[:160])
    return " ".join(words)
