"""The files of one run or of a comparison: parquet, JSON, PNG and one HTML page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fairlead.errors import InputError
from fairlead.report import as_json, html, plots
from fairlead.report.names import distinct, short_names, slug

if TYPE_CHECKING:
    from fairlead.report.claims import Reproduction
    from fairlead.sim.result import Result


@dataclass(frozen=True, slots=True)
class Written:
    """What was written, and what was not."""

    folder: Path
    page: Path
    plots: tuple[Path, ...]
    hint: str | None = None
    """How to get the plots as files, where matplotlib is absent."""


def prepare(out_dir: str | Path) -> Path:
    """Make the folder, before hours are spent on results that would have nowhere to go."""
    folder = Path(out_dir)
    if folder.exists() and not folder.is_dir():
        raise InputError(f"cannot write results into {folder}: it is a file", hint="give a folder")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / ".fairlead-write-test"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise InputError(f"cannot write results into {folder}: {error.strerror or error}") from error
    return folder


def write(
    results: Result | Sequence[Result],
    out_dir: str | Path,
    *,
    names: Sequence[str] | None = None,
    command: str = "",
) -> Written:
    """Write everything there is to say into a folder, over what an earlier run left there.

    `names` are what the runs are called, in files too; without them each is called by what sets its policy apart.
    """
    runs = results if isinstance(results, Sequence) else [results]
    if not runs:
        raise InputError("there is no result to write")
    names = distinct(names) if names is not None else short_names([result.policy for result in runs])
    named = dict(zip(names, runs, strict=True))
    folder = prepare(out_dir)
    files = _write_frames(named, folder)
    _write_summary(named, files, folder / "summary.json", command)
    pictures = _write_plots(named, folder / "plots")
    page = folder / "report.html"
    page.write_text(html.page(named, command=command), encoding="utf-8")
    return Written(folder, page, pictures, None if pictures else plots.INSTALL_HINT)


def _write_frames(runs: dict[str, Result], folder: Path) -> list[dict[str, str]]:
    endings = [f"-{name}" for name in distinct([slug(name) for name in runs])] if len(runs) > 1 else [""]
    files = []
    for ending, result in zip(endings, runs.values(), strict=True):
        names = {"jobs": f"jobs{ending}.parquet", "timeline": f"timeline{ending}.parquet"}
        result.jobs.write_parquet(folder / names["jobs"])
        result.timeline.write_parquet(folder / names["timeline"])
        held = None if result.occupancy is None else result.occupancy.held
        for kind, frame in (("fleet", result.fleet), ("evictions", result.evictions), ("placements", held)):
            if frame is not None:
                names[kind] = f"{kind}{ending}.parquet"
                frame.write_parquet(folder / names[kind])
        files.append(names)
    return files


def summary_of(result: Result) -> dict[str, Any]:
    """One run as the JSON object that `--json` prints."""
    about = {"policy": result.policy, "cluster": result.cluster, "trace": result.trace}
    parts = {name: summary_of(part) for name, part in result.parts.items()}
    return {**about, **result.summary, "notes": result.notes, **({"parts": parts} if parts else {})}


def _write_summary(runs: dict[str, Result], files: list[dict[str, str]], path: Path, command: str) -> None:
    entries = [
        {"name": name, **summary_of(result), "files": own}
        for (name, result), own in zip(runs.items(), files, strict=True)
    ]
    text = as_json.dumps({"command": command, "runs": entries})
    path.write_text(text + "\n", encoding="utf-8")


def _write_plots(runs: dict[str, Result], folder: Path) -> tuple[Path, ...]:
    if not plots.available():
        return ()
    folder.mkdir(exist_ok=True)
    paths = []
    for plot in plots.of_runs(runs):
        path = folder / f"{plot.name}.png"
        path.write_bytes(plots.save(plot, runs, "png"))
        paths.append(path)
    return tuple(paths)


def write_reproduction(found: Reproduction, out_dir: str | Path) -> str | None:
    """Claims, page and plots of a reproduced paper; tells how to get the plots, where matplotlib is absent."""
    folder = prepare(out_dir)
    (folder / "claims.json").write_text(as_json.dumps(found.as_json()) + "\n", encoding="utf-8")
    (folder / "report.html").write_text(html.reproduction(found), encoding="utf-8")
    if not plots.available():
        return plots.INSTALL_HINT
    for figure in found.figures:
        (folder / f"{figure.name}.png").write_bytes(plots.save_drawing(figure.title, figure.draw))
    return None
