"""The JSON of `gpu.py`: what it has to hold, what is counted in it, and docs/gpu.md made of it.

Nothing but the standard library and `tables` is imported here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from tables import table

MADE = 1
"""The format; a file of another one is refused."""
STATUSES = ("ran", "stopped", "broken", "absent", "not run")
COMMAND = "PYTHONPATH=src:adapters python benchmarks/gpu.py --out benchmarks/gpu.json"

# ---------------------------------------------------------------- counting


def summary(part: str, rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The rows of a part in numbers, with every failure by name."""
    failures = [
        {"name": row["name"], "text": row.get("text", "")}
        for row in rows
        if not row.get("ok", True)
    ]
    skipped = Counter(row["skipped"] for row in rows if isinstance(row.get("skipped"), str))
    common = {
        "items": len(rows),
        "passed": sum(bool(row.get("ok")) for row in rows),
        "failed": len(failures),
        "skipped": skipped.total(),
        "failures": failures,
        "skips": dict(skipped),
    }
    return common | {
        "conformance": conformed,
        "examples": listed,
        "large": listed,
        "tests": tested,
        "torch operators": judged,
        "jax operators": judged,
    }[part](rows)


def conformed(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """How much the kit compared."""
    ways = Counter(row["name"].partition(":")[0] for row in rows)
    return {"comparisons": sum(row.get("comparisons", 0) for row in rows), "checks": dict(ways)}


def listed(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The rows themselves: there are few."""
    return {"rows": [dict(row) for row in rows]}


def tested(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """What pytest counted, over all files."""
    counts = {
        key: sum(row[key] for row in rows if isinstance(row.get(key), int))
        for key in ("passed", "failed", "skipped")
    }
    reasons: Counter[str] = Counter()
    for row in rows:
        reasons.update(row.get("skips", {}))
    died = sum("skips" not in row for row in rows)
    return {**counts, "failed": counts["failed"] + died, "skips": dict(reasons)}


def judged(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Of each judge, dtype and planted error: how many were asked, and how each verdict was.

    `false alarms` are rejections of what nothing was planted in, and nothing else excuses.
    Planted errors count as found where the judge accepts the same derivative without one.
    """
    answered = [row for row in rows if row.get("rulings")]
    counts: dict[str, dict[str, dict[str, int]]] = {}
    alarms, missed = [], []
    # a formula that a reference shows to be wrong is so in every dtype
    wrong = {row["name"].rpartition(" ")[0] for row in answered if row.get("known") is True}
    for row in answered:
        dtype = row["name"].rpartition(" ")[2]
        clean = {r["judge"]: r["verdict"] for r in row["rulings"] if r["delta"] == 0}
        for r in row["rulings"]:
            judge = f"{r['judge']}, {dtype}"
            cell = counts.setdefault(judge, {}).setdefault(f"{r['delta']:g}", Counter())
            cell[r["verdict"]] += 1
            accepted = clean.get(r["judge"]) == "pass"
            excused = row["name"].rpartition(" ")[0] in wrong or row.get("excused")
            note = {"name": row["name"], "judge": judge, "text": r["text"]}
            if r["delta"] == 0 and r["verdict"] in ("reject", "crash") and not excused:
                alarms.append(note | {"verdict": r["verdict"]})
            if r["delta"] and accepted:
                cell["asked"] += 1
                cell["found"] += r["verdict"] == "reject"
                if r["verdict"] != "reject" and r["judge"] == "adjudge":
                    missed.append(note | {"delta": r["delta"], "verdict": r["verdict"]})
    seconds: Counter[str] = Counter()
    for row in answered:
        for r in row["rulings"]:
            judge = f"{r['judge']}, {row['name'].rpartition(' ')[2]}"
            seconds[judge] += r["seconds"] if r["delta"] == 0 else 0.0
    return {
        "pairs": len(answered),
        "judges": {
            judge: {d: dict(c) for d, c in cells.items()} for judge, cells in counts.items()
        },
        "alarms": alarms,
        "missed": missed,
        "judge_seconds": {judge: round(total, 2) for judge, total in seconds.items()},
    }


# ---------------------------------------------------------------- what a file has to hold

FIELDS: dict[str, type | tuple[type, ...]] = {
    "format": int, "date": str, "dry_run": bool, "engines": list, "minutes": (int, float),
    "seconds": (int, float), "commit": dict, "machine": dict, "versions": dict, "parts": list,
}  # fmt: skip
OF_PART: dict[str, type | tuple[type, ...]] = {
    "name": str, "engine": str, "device": str, "status": str, "reason": str,
    "seconds": (int, float), "on": dict, "errors": list, "summary": dict,
}  # fmt: skip


def problems(run: Any, *, gpu: bool = True) -> list[str]:
    """What keeps this from being the JSON of a run; with `gpu`: of a run on a GPU."""
    found = wrong_fields(run, FIELDS, "the file")
    if found:
        return found
    if run["format"] != MADE:
        return [f"format is {run['format']}, not {MADE}"]
    for part in run["parts"]:
        found += wrong_fields(part, OF_PART, "a part")
    if found:
        return found
    for part in run["parts"]:
        found += [f"{titled(part)}: {text}" for text in of_part(part)]
    if not gpu:
        return found
    if run["dry_run"]:
        found.append("a dry run is no run on a GPU")
    found += [
        f"machine: no {key}" for key in ("gpu", "driver", "cuda") if not run["machine"].get(key)
    ]
    if not run["commit"].get("hash"):
        found.append("commit: no hash")
    done = [part for part in run["parts"] if part["summary"]]
    if not done:
        found.append("no part was run")
    for part in done:
        found += [f"{titled(part)}: {text}" for text in elsewhere(part)]
    return found


def wrong_fields(value: Any, fields: dict[str, Any], where: str) -> list[str]:
    """Fields that are absent or of another type."""
    if not isinstance(value, dict):
        return [f"{where} is a {type(value).__name__}"]
    return [
        f"{where}: {key} is absent" if key not in value else f"{where}: {key} is {value[key]!r}"
        for key, kind in fields.items()
        if key not in value
        or not isinstance(value[key], kind)
        or (isinstance(value[key], bool) and kind is not bool)
    ]


def of_part(part: dict[str, Any]) -> list[str]:
    """What is wrong about one part."""
    found = []
    if part["status"] not in STATUSES:
        found.append(f"status {part['status']!r}")
    if part["status"] != "ran" and not part["reason"]:
        found.append(f"{part['status']} without a reason")
    if part["status"] == "ran" and not part["summary"].get("items"):
        found.append("ran, and holds nothing")
    counted = part["summary"].get("failures", [])
    if len(counted) > part["summary"].get("failed", 0):
        found.append("more failures are listed than counted")
    return found


def elsewhere(part: dict[str, Any]) -> list[str]:
    """Where a part was not on a GPU."""
    found = []
    if part["on"] and part["on"].get("platform") != "cuda":
        found.append(f"on {part['on'].get('device')}, which is no GPU")
    if not part["on"] and part["summary"].get("items"):
        found.append("does not say on which device it ran")
    on_cpu = [
        row["name"]
        for row in part["summary"].get("rows", ())
        # an example may hand its arrays from the CPU to a kernel: its table says where they are
        if part["name"] == "large"
        and str(row.get("device", "cuda")).partition(":")[0] not in ("cuda", "gpu")
    ]
    return found + [f"{name} was not on the GPU" for name in on_cpu]


def titled(part: dict[str, Any]) -> str:
    """Part and engine."""
    return f"{part['name']}, {part['engine']}"


# ---------------------------------------------------------------- the page

HEAD = """\
# On a GPU

<!-- written by `python benchmarks/gpu.py --page`; a test holds it to benchmarks/gpu.json -->

"""

NEVER = f"""\
**It has not run on a GPU yet.** What this documentation says of CUDA devices was tested as far as a
CPU reaches: on arrays of NumPy, on the devices of array-api-strict, on PyTorch's `meta`, on several
CPU devices of JAX, and with CUDA kernels that are compiled and not launched. No number of it is one
of a GPU.

On a machine with an NVIDIA driver, with CuPy, PyTorch or JAX (those that are absent are left out,
and the file says so), this is one command:

```console
$ {COMMAND}
```

or `nox -s gpu`, which installs what fits the driver first. It takes 20 minutes at most
(`--minutes`), goes on with `--resume` where that was not enough, and this page is then
`python benchmarks/gpu.py --page benchmarks/gpu.json`.
"""

RUNS = """\
## What it runs

In this order, every part in a process of its own with a time limit of its own, so that an error
from which a device does not recover ends one part only:

- the conformance kit on CuPy, PyTorch (eager and `torch.func`) and JAX, with the GPU as the device
  on which every array is made;
- the examples with CUDA kernels, right and wrong, each with its expected verdict;
- the check of an elementwise kernel pair of 1e5 to 1e7 entries, as a multiple of the pair's time;
- the tests of engines and of device placement;
- operators of PyTorch and primitives of JAX, as they are and with planted errors.

`--dry-run` does the same on the CPU, in little, and its file is not accepted as that of a run.
"""


def page(run: dict[str, Any] | None) -> str:
    """docs/gpu.md as it follows from the JSON of a run on a GPU; `None`: there is none."""
    if run is None:
        return HEAD + NEVER + "\n" + RUNS
    return HEAD + "\n".join([ran(run), overview(run["parts"]), *details(run["parts"]), RUNS])


def ran(run: dict[str, Any]) -> str:
    """When, on what, of which commit."""
    on, commit = run["machine"], run["commit"]
    dirty = ", with changes that are not committed" if commit.get("dirty") else ""
    known = ", ".join(f"{name} {found}" for name, found in run["versions"].items() if found)
    gpu = f"{on['gpu']} ({on.get('memory')}), driver {on['driver']}, CUDA {on['cuda']}"
    return (
        f"It ran last on {run['date'][:10]}, on one {gpu}, Python {on['python']}, commit "
        f"`{commit['hash'][:12]}`{dirty}, in {run['seconds'] / 60:.1f} minutes.\n\n"
        f"{known}.\n\n```console\n$ {COMMAND}\n```\n"
    )


def overview(parts: Sequence[dict[str, Any]]) -> str:
    """One line a part."""
    lines = []
    keys = ("items", "passed", "failed", "skipped", "comparisons")
    for part in parts:
        counts = part["summary"]
        status = part["status"] + (f": {part['reason']}" if part["reason"] else "")
        where = (part["name"], part["engine"], part["on"].get("device", "-"), status)
        numbers = [counts.get(key, "-") for key in keys]
        lines.append((*where, *numbers, f"{part['seconds']:.0f}"))
    columns = ("part", "engine", "device", "status", *keys, "s")
    return "## Parts\n\n" + table(columns, lines)


def details(parts: Sequence[dict[str, Any]]) -> list[str]:
    """The tables of the parts, and everything that failed."""
    sections = []
    for name, make in (("large", large), ("examples", examples)):
        rows = [row for p in parts if p["name"] == name for row in p["summary"].get("rows", ())]
        if rows:
            sections.append(make(rows))
    sections += [operators(p) for p in parts if p["summary"].get("judges")]
    failures = [
        (titled(part), one["name"], one["text"][:300])
        for part in parts
        for one in part["summary"].get("failures", ())
    ]
    failures += [(titled(part), "-", text[:300]) for part in parts for text in part["errors"]]
    told = table(["part", "what", "found"], failures) if failures else "Nothing failed.\n"
    skips = [
        (titled(part), reason, count)
        for part in parts
        for reason, count in part["summary"].get("skips", {}).items()
    ]
    left_out = "\n## What was skipped\n\n" + table(["part", "reason", "number"], skips)
    return [*sections, "## What failed\n\n" + told + (left_out if skips else "")]


def large(rows: Sequence[dict[str, Any]]) -> str:
    """The check of a large kernel pair."""
    lines = []
    for row in rows:
        if "own" in row:
            times = (1e3 * row["own"], row["check"], row["multiple"])
            peaks = [
                "-" if row.get(key) is None else f"{row[key] / row['array_bytes']:.1f}"
                for key in ("host_peak", "device_peak")
            ]
            what = [row[key] for key in ("engine", "device", "n", "dtype")]
            found = [row[key] for key in ("evaluations", "vjps", "verdict")]
            lines.append((*what, *(f"{t:.3g}" for t in times), *found, *peaks))
        elif "wrong" in row:
            what = [row[key] for key in ("engine", "device", "n", "dtype")]
            time, found = f"{row['wrong_seconds']:.3g}", [row["wrong_evaluations"], "-"]
            verdict = f"{row['wrong']}, of a wrong pair"
            lines.append((*what, "-", time, "-", *found, verdict, "-", "-"))
    columns = ["engine", "device", "n", "dtype", "pair, ms", "check, s", "multiple"]
    columns += ["evaluations", "vjps", "verdict", "host, arrays", "device, arrays"]
    return (
        "## A large kernel pair\n\n`y = x exp(-x²)` and its pullback; times are warm and "
        "synchronised, memory is the peak in arrays of the size of x.\n\n" + table(columns, lines)
    )


def examples(rows: Sequence[dict[str, Any]]) -> str:
    """The verdicts on the examples."""
    lines = [
        (row["name"], row["device"], row["expected"], row["verdict"], row["text"][:160])
        for row in rows
        if "verdict" in row
    ]
    return "## Examples\n\n" + table(["case", "device", "expected", "verdict", "found"], lines)


def operators(part: dict[str, Any]) -> str:
    """Planted errors in operators, by judge."""
    counts = part["summary"]
    deltas = sorted(
        {d for cells in counts["judges"].values() for d in cells if d != "0"}, key=float
    )[::-1]
    lines = []
    for judge, cells in sorted(counts["judges"].items()):
        clean = cells.get("0", {})
        alarms = [one for one in counts["alarms"] if one["judge"] == judge]
        found = [
            f"{c.get('found', 0)} of {c.get('asked', 0)}"
            for c in (cells.get(d, {}) for d in deltas)
        ]
        asked = sum(clean.get(verdict, 0) for verdict in VERDICTS)
        counted = (asked, clean.get("pass", 0), len(alarms), clean.get("inconclusive", 0))
        lines.append((judge, *counted, *found, counts["judge_seconds"].get(judge, "-")))
    columns = ["judge", "pairs", "pass", "false alarms", "inconclusive"]
    columns += [*(f"found, δ = {d}" for d in deltas), "s"]
    told = [
        (one["name"], f"{one.get('delta', 0):g}", one["verdict"], one["text"])
        for one in (*counts["alarms"], *counts["missed"])
        if one["judge"].startswith("adjudge")
    ]
    note = "Found: of those that the judge accepts as they are. Seconds: as they are."
    note += " JAX's products are in the highest precision.\n" if part["engine"] == "jax" else "\n"
    title = f"## {part['name']} on {part['on'].get('device', '-')}\n\n"
    ours = "\nFalse alarms of adjudge (δ = 0), and planted errors that it does not reject:\n\n"
    ours += table(["operator", "δ", "verdict", "found"], told)
    return f"{title}{table(columns, lines)}\n{note}{ours if told else ''}"


VERDICTS = ("pass", "reject", "inconclusive", "crash")
