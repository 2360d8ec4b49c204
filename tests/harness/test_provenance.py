import json
import subprocess
from pathlib import Path

import pytest

from harness.provenance import collect, git_state, package_versions, utc_now
from harness.redact import REDACTED, Redactor, is_secret_name, machine_places
from tests.harness.cells import cell

SECRET = "s3cr3t-value-42"


@pytest.mark.parametrize(
    "name", ["HF_TOKEN", "OPENAI_API_KEY", "--api-key", "apiKey", "AWS_SECRET_ACCESS_KEY", "db.password", "APIKEY"]
)
def test_secret_names(name: str) -> None:
    assert is_secret_name(name)


@pytest.mark.parametrize(
    "name", ["--max-num-batched-tokens", "tokenizer", "num_speculative_tokens", "warmup_output_tokens", "monkey"]
)
def test_names_that_only_look_secret(name: str) -> None:
    assert not is_secret_name(name)


def test_values_of_secret_variables_vanish_from_any_text() -> None:
    redactor = Redactor({"HF_TOKEN": SECRET, "SHORT_KEY": "1", "HOME": "/home/me"})
    assert redactor.text(f"GET 1 with {SECRET} from /home/me") == f"GET 1 with {REDACTED} from /home/me"


def test_secret_that_contains_another_leaves_nothing_behind() -> None:
    redactor = Redactor({"A_KEY": "abcdef", "B_KEY": "abcdefghij"})
    assert redactor.text("x abcdefghij y") == f"x {REDACTED} y"


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("Authorization: Bearer abcdef123456", "Authorization: Bearer "),
        ("hf_ABCDEFGHIJKLMNOPQRST in a url", " in a url"),
        ("http://me:hunter22@proxy:3128/", "@proxy:3128/"),
        ("args: {'api_key': ['hunter22'], 'port': 1}", "'port': 1}"),
        ("engine.extra_args=[--api-key,hunter22,--port,1]", ",--port,1]"),
    ],
)
def test_secrets_are_known_by_their_shape(text: str, kept: str) -> None:
    cleaned = Redactor({}).text(text)
    assert REDACTED in cleaned
    assert kept in cleaned
    assert not any(secret in cleaned for secret in ("hunter22", "abcdef123456", "ABCDEFGHIJ"))


def test_innocent_text_is_left_alone() -> None:
    text = "tokenizer=/m, max_num_batched_tokens=2048, bos_token='<s>', key: value, 12 tok/s"
    assert Redactor({}).text(text) == text


def test_command_line_loses_both_spellings_of_a_secret() -> None:
    argv = ["serve", "--api-key", SECRET, "--hf-token=abc", "--port", "80", "--max-num-batched-tokens", "2048"]
    assert Redactor({}).argv(argv) == [
        *("serve", "--api-key", REDACTED, f"--hf-token={REDACTED}", "--port", "80"),
        *("--max-num-batched-tokens", "2048"),
    ]


def test_option_with_several_secret_values_loses_all_of_them() -> None:
    assert Redactor({}).argv(["--api-key", "one", "two", "--port", "1"]) == [
        *("--api-key", REDACTED, REDACTED, "--port", "1")
    ]


def test_configuration_is_cleaned_by_key_value_and_argument() -> None:
    config = {"engine": {"extra_args": ["--api-key", "x1"], "api_key": "x2", "n": 3}, "note": f"use {SECRET}"}
    assert Redactor({"MY_TOKEN": SECRET}).tree(config) == {
        "engine": {"extra_args": ["--api-key", REDACTED], "api_key": REDACTED, "n": 3},
        "note": f"use {REDACTED}",
    }


def test_environment_keeps_names_of_secret_variables() -> None:
    assert Redactor({}).env({"HF_TOKEN": "x", "OMP_NUM_THREADS": "2"}) == {"HF_TOKEN": REDACTED, "OMP_NUM_THREADS": "2"}


def test_log_file_is_cleaned_in_place_and_keeps_bytes_that_are_no_text(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    log.write_bytes(b"\xff raw\n" + SECRET.encode() + b"\n")
    redactor = Redactor({"X_KEY": SECRET})
    assert redactor.file(log)
    assert log.read_bytes() == b"\xff raw\n" + REDACTED.encode() + b"\n"
    assert not redactor.file(log)
    assert not redactor.file(tmp_path / "absent.log")


def test_folders_are_named_and_not_located() -> None:
    places = {"/home/me": "~", "/home/me/project": "<project>", "/home/me/project/results/x": "<run>"}
    redactor = Redactor({}, places=places)
    assert redactor.argv(["/home/me/project/.venv/python", "--model", "/home/me/models", "--x=/home/me/project"]) == [
        *("<project>/.venv/python", "--model", "~/models", "--x=<project>")
    ]
    assert redactor.text("'/home/me/project/results/x/proof', 'file:///home/me/a'") == "'<run>/proof', 'file://~/a'"
    assert redactor.text("/home/me2 and /srv/home/me") == "/home/me2 and /srv/home/me"


def test_places_of_this_machine_are_its_home_environment_project_and_the_run(tmp_path: Path) -> None:
    places = machine_places(tmp_path)
    assert places[str(tmp_path)] == "<run>"
    assert {"<env>", "<project>", "<run>"} <= set(places.values())


def test_provenance_says_what_ran_and_keeps_no_secret(tmp_path: Path) -> None:
    provenance = collect(
        cell(),
        redactor=Redactor({"HF_TOKEN": SECRET}),
        seed=3,
        started_utc=utc_now(),
        server_argv=["python", "--api-key", SECRET],
        server_env={"HF_TOKEN": SECRET, "VLLM_PLUGINS": "hybrid_spark"},
        plugin={"inherited": {"NOTE": f"a {SECRET} b"}},
    )
    assert SECRET not in json.dumps(provenance.model_dump())
    assert provenance.server_env["VLLM_PLUGINS"] == "hybrid_spark"
    assert provenance.workload_source == "made up"
    assert provenance.seed == 3
    assert provenance.cpu_model
    assert provenance.packages["pydantic"]
    assert provenance.gpu_names == []
    assert provenance.started_utc.endswith("+00:00")
    assert provenance.started_utc <= provenance.finished_utc


def test_packages_that_are_not_installed_are_left_out() -> None:
    assert set(package_versions(["pydantic", "no-such-package-at-all"])) == {"pydantic"}


def test_changed_code_is_dirty_and_written_results_are_not(tmp_path: Path) -> None:
    def git(*arguments: str) -> None:
        subprocess.run(
            ["git", "-C", str(tmp_path), "-c", "user.name=t", "-c", "user.email=t@t", *arguments],
            check=True,
            capture_output=True,
        )

    (tmp_path / "harness").mkdir()
    (tmp_path / "harness" / "a.py").write_text("1\n")
    git("init", "-q")
    git("add", ".")
    git("commit", "-qm", "first")
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "record.json").write_text("{}")
    commit, dirty = git_state(tmp_path)
    assert commit is not None
    assert len(commit) == 40
    assert dirty is False
    (tmp_path / "harness" / "new.py").write_text("2\n")
    assert git_state(tmp_path) == (commit, True)


def test_a_folder_inside_another_repository_is_not_that_repository(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    inside = tmp_path / "site-packages"
    inside.mkdir()
    assert git_state(inside) == (None, None)
