"""Where the headers that stand for Apple's say something else than Apple's."""

import re
from collections.abc import Iterator

from apple_headers.declared import Declared, Member, number

# Names that begin so are compared; all others are the C library's, which is the SDK's in both cases.
OURS = re.compile(r"^(?:struct )?(?:MTL|MPS|NS|dispatch_)")


def shown(name: str) -> str:
    return name.strip("<>")


def in_class(key: str) -> str:
    return {"@": "property ", "+": "+", "-": "-"}[key[0]] + key[1:]


def types(double: Declared, sdk: Declared) -> Iterator[str]:
    for name, ours in sorted(double.types.items()):
        if shown(name).startswith("_"):
            continue
        theirs = sdk.types.get(name)
        if theirs is None:
            yield f"{shown(name)}: the SDK has no such {'protocol' if ours.protocol else 'class'}"
            continue
        yield from descent(name, double, sdk)
        for key, member in sorted(ours.members.items()):
            if member.implicit:
                continue  # the property's
            yield from members(shown(name), key, member, sdk.member(name, key))


def descent(name: str, double: Declared, sdk: Declared) -> Iterator[str]:
    ours, theirs = double.types[name], sdk.types[name]
    # Of Foundation there is a part: steps of descent and conformances may be left out, but not invented.
    whole = shown(name).startswith(("MTL", "MPS"))
    if ours.above != theirs.above and (whole or ours.above not in sdk.ancestry(name)):
        yield f"{name}: descends from {ours.above or 'nothing'}, in the SDK from {theirs.above or 'nothing'}"
    for extra in sorted(ours.protocols - set(sdk.ancestry(name))):
        yield f"{shown(name)}: conforms to {shown(extra)}, in the SDK it does not"
    for missing in sorted(theirs.protocols - set(double.ancestry(name))):
        if whole and missing in double.types:
            yield f"{shown(name)}: does not conform to {shown(missing)}, in the SDK it does"


def members(type_name: str, key: str, ours: Member, theirs: Member | None) -> Iterator[str]:
    name = f"{type_name}: {in_class(key)}"
    if theirs is None:
        yield f"{name} is not in the SDK"
        return
    if ours.signature() != theirs.signature():
        yield f"{name} is {ours.signature()}, in the SDK {theirs.signature()}"
    if ours.attributes != theirs.attributes:
        yield f"{name} is {words(ours.attributes)}, in the SDK {words(theirs.attributes)}"
    for word in ("designated", "unavailable"):
        if getattr(ours, word) != getattr(theirs, word):
            yield f"{name} is {'' if getattr(ours, word) else 'not '}{word}, in the SDK the contrary"


def words(attributes: frozenset[str]) -> str:
    return " ".join(sorted(attributes)) or "without attributes"


def values(double: Declared, sdk: Declared) -> Iterator[str]:
    for name, value in sorted(double.enumerators.items()):
        if not OURS.match(name):
            continue
        if name not in sdk.enumerators:
            yield f"{name}: the SDK has no such enumerator"
        elif sdk.enumerators[name] != value:
            yield f"{name} is {value}, in the SDK {sdk.enumerators[name]}"
    for name, type_ in sorted(double.names.items()):
        if not OURS.match(name):
            continue
        if name not in sdk.names:
            yield f"{name}: the SDK has no such function, variable or type"
        elif sdk.names[name] != type_:
            yield f"{name} is {type_}, in the SDK {sdk.names[name]}"


ROW = re.compile(r"^\| `([^`]+)` \| \[([^\]]+)\]\([^)]*\) \| ([\d.]+) \|", re.MULTILINE)


def first_version(sdk: Declared, name: str, page: str) -> str:
    """The first macOS that has what the page of a type declares; empty where the header does not say."""
    found = [sdk.versions.get(name, "")]
    for type_name in (page, f"<{page}>"):
        members = (sdk.member(type_name, sign + name) for sign in "-+@")
        found += [member.version for member in members if member]
    found += [sdk.types[each].version for each in (name, f"<{name}>") if each in sdk.types]
    return min((each for each in found if each), key=number, default="")


def versions(document: str, sdk: Declared) -> Iterator[str]:
    """Rows of docs/metal-api.md whose macOS is not that of the SDK's availability."""
    for name, page, said in ROW.findall(document):
        there = first_version(sdk, name, page)
        # An enumerator without a version of its own may be younger than its enumeration.
        inherits = name in sdk.inherited and number(said) > number(there or said)
        if there and number(there) != number(said) and not inherits:
            yield f"docs/metal-api.md: {name} of {page} is there since macOS {said}, by the SDK since {there}"
