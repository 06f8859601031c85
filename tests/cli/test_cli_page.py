"""Where the page is, and how one signs in to it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fairlead.cli.live import _ready
from fairlead.cli.page import link, page_url
from fairlead.live.home import Home


def test_the_page_is_found_from_this_machine_and_a_code_is_only_in_the_fragment() -> None:
    assert page_url("http://127.0.0.1:7317") == "http://127.0.0.1:7317/"
    assert page_url("http://0.0.0.0:7317") == "http://127.0.0.1:7317/", "a controller that listens everywhere is here"
    made = link("https://gpus.example:7317", "some-code")
    assert made == "https://gpus.example:7317/#sign-in=some-code"


def test_up_says_where_the_page_is_and_how_to_sign_in(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    url, home = "http://127.0.0.1:7317", Home(tmp_path)
    _ready(url, home, False)
    said = " ".join(capsys.readouterr().err.split())
    assert "its page is http://127.0.0.1:7317/" in said
    assert "`fairlead page` prints a link that signs you in" in said
    _ready(url, home, False, link(url, "some-code"))
    assert "http://127.0.0.1:7317/#sign-in=some-code" in capsys.readouterr().err.replace("\n", "")
    _ready(url, home, True)
    assert json.loads(capsys.readouterr().out)["url"] == url
