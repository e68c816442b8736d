"""The Beaker engine with a DOUBLE of the hub: submitting, finding and reading jobs, and failures on the way."""

from __future__ import annotations

import threading
from base64 import b64decode
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from beaker_hub_double import PASSWORD, USER, BeakerHubDouble
from simulated_engine import tiny_run

from fabricated_runs import EPOCH
from ringroad_lab.errors import ScenarioError
from ringroad_lab.fleet.dispatcher import Dispatcher, DispatcherSettings
from ringroad_lab.fleet.engine.beaker.engine import LOG_NAME, BeakerEngine
from ringroad_lab.fleet.engine.beaker.job_xml import NAMESPACE
from ringroad_lab.fleet.engine.beaker.results import read_results
from ringroad_lab.fleet.engine.beaker.settings import BeakerSettings
from ringroad_lab.fleet.engine.interface import EngineError, EngineSettings, Job, JobState
from ringroad_lab.fleet.holder import this_process
from ringroad_lab.fleet.inventory import BedSettings
from ringroad_lab.fleet.leases import Leases
from ringroad_lab.fleet.requests import Requests
from ringroad_lab.fleet.settings import read_fleet
from ringroad_lab.request.message import Message
from ringroad_lab.request.model import RequestState, Wanted
from ringroad_lab.store.result_store import ResultStore

RUN = "11111111-2222-3333-4444-555555555555"
ARGUMENTS = ("run", "OVS_DPDK1q", '--label=what=it\'s "new" <&>', "--set=queues = 2")
NAMESPACES = {"lab": NAMESPACE}
BEDS = {
    "bed-1": BedSettings.model_validate({"class": "nic", "machines": {"generator": "gen-1.example", "dut": "dut-1.example"}}),
    "bed-10": BedSettings.model_validate({"class": "nic", "machines": {"generator": "gen-10.example", "dut": "dut-10.example"}}),
}


@pytest.fixture
def hub() -> Iterator[BeakerHubDouble]:
    with BeakerHubDouble() as hub:
        yield hub


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "password").write_text(f"{PASSWORD}\n")
    return tmp_path


def engine(hub: BeakerHubDouble, folder: Path, more: dict[str, Any] | None = None, **settings: Any) -> BeakerEngine:  # noqa: ANN401
    values = {
        "hub": hub.url,
        "user": USER,
        "password_file": str(folder / "password"),
        "task": "https://example.org/ringroad.tar.gz#lab/beaker/measure",
        "look_every_s": 0.0,
        "recipe": {"distro": "Fedora-41"},
        **settings,
        **(more or {}),
    }
    return BeakerEngine(EngineSettings(None, folder / "jobs", own=BeakerSettings.model_validate(values)))


def job(name: str = RUN, beds: Mapping[str, BedSettings] | None = None) -> Job:
    return Job(name, ARGUMENTS, beds or {})


def uploaded(hub: BeakerHubDouble, number: int = 1) -> ElementTree.Element:
    return ElementTree.fromstring(hub.jobs[number].xml)


def bed_of(hub: BeakerHubDouble, number: int) -> str | None:
    mark = uploaded(hub, number).find("lab:run", NAMESPACES)
    assert mark is not None
    return mark.get("bed")


def params(recipe: ElementTree.Element) -> dict[str, str | None]:
    (ours,) = (task for task in recipe.findall("task") if task.find("fetch") is not None)
    return {param.get("name", ""): param.get("value") for param in ours.iter("param")}


def test_generator_and_device_are_in_one_recipe_set_on_the_machines_of_the_bed(hub: BeakerHubDouble, folder: Path) -> None:
    assert engine(hub, folder).submit(job(beds={"bed-1": BEDS["bed-1"]})) == "J:1"
    root = uploaded(hub)
    recipes = root.findall("recipeSet/recipe")
    assert [recipe.get("role") for recipe in recipes] == ["GENERATOR", "DUT"]
    assert [recipe.find("hostRequires").get("force") for recipe in recipes] == ["gen-1.example", "dut-1.example"]  # type: ignore[union-attr]
    for recipe, role in zip(recipes, ("generator", "dut"), strict=True):
        values = params(recipe)
        assert values["RINGROAD_LAB_JOB"] == RUN
        assert values["RINGROAD_LAB_BED"] == "bed-1"
        assert values["RINGROAD_LAB_ROLE"] == role
    mark = root.find("lab:run", NAMESPACES)
    assert mark is not None
    assert (mark.get("id"), mark.get("bed")) == (RUN, "bed-1")
    assert RUN in hub.jobs[1].whiteboard
    # Both machines share a secret for authentication; another job has a different secret.
    one, other = (params(recipe)["RINGROAD_LAB_RENDEZVOUS_SECRET"] for recipe in recipes)
    assert one == other
    engine(hub, folder).submit(job("another"))
    assert params(uploaded(hub, 2).findall("recipeSet/recipe")[0])["RINGROAD_LAB_RENDEZVOUS_SECRET"] != one


def test_tasks_are_at_the_same_positions_and_recipes_meet_the_requirements_of_their_role(hub: BeakerHubDouble, folder: Path) -> None:
    made = engine(
        hub,
        folder,
        recipe={
            "distro": "RHEL-9.4.0",
            "arch": "x86_64",
            "tasks": ["/distribution/check-install"],
            "kernel_options_post": "intel_iommu=on iommu=pt default_hugepagesz=1G hugepagesz=1G hugepages=16",
            "repos": {"lab": "https://example.org/repo"},
            "packages": ["ringroad-lab"],
            "partitions": [{"name": "/srv", "size_gib": 20, "fs": "xfs"}],
        },
        role={
            "dut": {"tasks": ["/distribution/check-install", "/kernel/setup"], "host_requires": "<memory op='&gt;=' value='8192'/>"},
            "generator": {"distro": "Fedora-41"},
        },
        reserve_s=600,
        reserve_when="onfail",
        group="perf",
        priority="High",
    )
    made.submit(job())
    root = uploaded(hub)
    generator, dut = root.findall("recipeSet/recipe")
    names = [[task.get("name") for task in recipe.findall("task")] for recipe in (generator, dut)]
    assert names == [
        ["/distribution/check-install", "/distribution/utils/dummy", "/ringroad/measure"],
        ["/distribution/check-install", "/kernel/setup", "/ringroad/measure"],
    ]
    assert {task.get("role") for task in generator.findall("task")} == {"GENERATOR"}
    assert generator.find("hostRequires").attrib == {}  # type: ignore[union-attr]
    assert dut.find("hostRequires/memory").get("value") == "8192"  # type: ignore[union-attr]
    assert generator.find("distroRequires/and/distro_name").get("value") == "Fedora-41"  # type: ignore[union-attr]
    assert dut.find("distroRequires/and/distro_name").get("value") == "RHEL-9.4.0"  # type: ignore[union-attr]
    assert "hugepages=16" in str(dut.get("kernel_options_post"))
    assert dut.find("partitions/partition").attrib == {"name": "/srv", "size": "20", "type": "part", "fs": "xfs"}  # type: ignore[union-attr]
    assert dut.find("reservesys").attrib == {"duration": "600", "when": "onfail"}  # type: ignore[union-attr]
    assert root.get("group") == "perf"
    assert root.find("recipeSet").get("priority") == "High"  # type: ignore[union-attr]


def test_of_several_beds_the_one_with_the_fewest_jobs_is_used(hub: BeakerHubDouble, folder: Path) -> None:
    made = engine(hub, folder)
    for number in (1, 2, 3):
        made.submit(job(f"run-{number}", BEDS))
    assert [bed_of(hub, number) for number in (1, 2, 3)] == ["bed-1", "bed-10", "bed-1"]
    hub.jobs[1].status = hub.jobs[3].status = "Completed"
    hub.jobs[2].status = "Running"
    made.submit(job("run-4", BEDS))
    assert bed_of(hub, 4) == "bed-1"


@pytest.mark.parametrize(
    ("beaker", "state"),
    [("New", "queued"), ("Queued", "queued"), ("Scheduled", "queued"), ("Installing", "queued"), ("Running", "running")],
)
def test_the_state_is_taken_from_the_hub(hub: BeakerHubDouble, folder: Path, beaker: str, state: str) -> None:
    made = engine(hub, folder)
    key = made.submit(job())
    hub.jobs[1].status = beaker
    assert made.state(key).state == state


@pytest.mark.parametrize("status", ["Completed", "Reserved"])
def test_an_ended_job_has_its_status_and_the_end_of_its_output(hub: BeakerHubDouble, folder: Path, status: str) -> None:
    made = engine(hub, folder)
    key = made.submit(job())
    ended = hub.jobs[1]
    ended.status, ended.result = status, "Fail"
    ended.results = {
        "GENERATOR": [("/ringroad/measure/exit-status", "Fail", 3, "ringroad-lab ended with status 3")],
        "DUT": [("/ringroad/measure/exit-status", "Pass", 0, "")],
    }
    ended.logs = {"taskout.log": b"no", LOG_NAME: b"x" * 10_000 + b"\nopenvswitch is not installed\n"}
    report = made.state(key)
    assert (report.state, report.exit_status) == (JobState.ENDED, 3)
    assert "openvswitch is not installed" in report.output
    assert len(report.output) < 5000
    assert "GENERATOR machine-1.example: /ringroad/measure: Fail: /ringroad/measure/exit-status" in report.output
    # The complete files are kept for users.
    assert sorted(path.name for path in (folder / "jobs").iterdir()) == ["beaker-1.log", "beaker-1.results.xml"]


def test_a_job_aborted_by_the_watchdog_reports_the_reason_and_can_be_retried(hub: BeakerHubDouble, folder: Path) -> None:
    made = engine(hub, folder)
    key = made.submit(job())
    hub.jobs[1].status, hub.jobs[1].result = "Aborted", "Warn"
    hub.jobs[1].results = {"DUT": [("/", "Warn", 0, "External Watchdog Expired")]}
    report = made.state(key)
    assert (report.state, report.exit_status) == (JobState.ENDED, None)
    assert "Beaker: Aborted, Warn" in report.output
    assert "DUT machine-2.example: /ringroad/measure: Warn: / External Watchdog Expired" in report.output
    # The next attempt may get other machines, so it starts a new run.
    assert not made.may_go_on(key)


def test_a_job_without_a_matching_machine_ends_with_the_hubs_reason(hub: BeakerHubDouble, folder: Path) -> None:
    made = engine(hub, folder)
    key = made.submit(job())
    hub.jobs[1].status, hub.jobs[1].result = "Aborted", "Warn"
    hub.jobs[1].results = {"GENERATOR": [("/", "Warn", 0, "Recipe ID 1 does not match any systems")]}
    assert "does not match any systems" in made.state(key).output


def test_a_failure_in_a_guest_names_the_guest() -> None:
    failed = b"<task name='/performance/test'><results><result path='/a' result='Fail' score='1'>no pages</result></results></task>"
    guest = b"<guestrecipe system='guest.example'>" + failed + b"</guestrecipe>"
    xml = b"<job><recipeSet><recipe role='DUT' system='dut.example'>" + guest + b"</recipe></recipeSet></job>"
    assert read_results(xml).words.splitlines()[1:] == ["guest guest.example: /performance/test: Fail: /a no pages"]


def test_a_hub_that_is_down_causes_a_delay(hub: BeakerHubDouble, folder: Path) -> None:
    made = engine(hub, folder)
    with hub.is_down():
        with pytest.raises(EngineError, match="cannot be reached"):
            made.submit(job())
        with pytest.raises(EngineError, match="cannot be reached"):
            made.reserve()
    # Nothing was lost, and the run keeps its name.
    assert made.may_go_on("")
    assert made.submit(job()) == "J:1"


def test_a_hub_that_does_not_answer_times_out_and_is_not_called_for_a_while(hub: BeakerHubDouble, folder: Path) -> None:
    made = engine(hub, folder, answer_within_s=0.2, look_every_s=600)
    made.submit(job())
    calls = len(hub.asked)
    hub.waits = threading.Event()
    with pytest.raises(EngineError, match=r"does not answer within 0.2 s"):
        made.state("J:1")
    with pytest.raises(EngineError, match="calls are suspended for 600 s"):
        made.state("J:1")
    assert len(hub.asked) == calls + 1


def test_an_expired_session_is_renewed(hub: BeakerHubDouble, folder: Path) -> None:
    made = engine(hub, folder)
    made.submit(job())
    hub.sessions.clear()
    made.submit(job("another"))
    assert (len(hub.jobs), hub.logins) == (2, 2)


def test_an_accepted_job_whose_answer_was_lost_is_found_by_its_name(hub: BeakerHubDouble, folder: Path) -> None:
    hub.loses_answers_to = {"jobs.upload"}
    assert engine(hub, folder).submit(job()) == "J:1"
    # Also if calls are suspended after a call without an answer.
    assert engine(hub, folder, look_every_s=15).submit(job("late")) == "J:2"
    # Another dispatcher does not submit the job again, even if the first one could not find it.
    hub.loses_answers_to = set()
    other = engine(hub, folder)
    assert other.find(RUN) == "J:1"
    assert other.submit(job()) == "J:1"
    assert len(hub.jobs) == 2
    assert other.find("another") is None


def test_a_rejected_job_is_reported_with_the_hubs_reason(hub: BeakerHubDouble, folder: Path) -> None:
    made = engine(hub, folder)
    made._hub._password = "wrong"
    with pytest.raises(EngineError, match=r"rejects the login of lab: .*Invalid username or password"):
        made.submit(job())
    assert not hub.jobs


def test_a_cancelled_job_ends_and_an_ended_job_can_be_cancelled_again(hub: BeakerHubDouble, folder: Path) -> None:
    made = engine(hub, folder)
    key = made.submit(job())
    made.cancel(key)
    assert hub.jobs[1].status == "Cancelled"
    made.cancel(key)
    assert made.state(key).state is JobState.ENDED
    with pytest.raises(EngineError, match="Invalid J 7"):
        made.cancel("J:7")


def test_a_deleted_job_has_ended(hub: BeakerHubDouble, folder: Path) -> None:
    made = engine(hub, folder)
    key = made.submit(job())
    del hub.jobs[1]
    report = made.state(key)
    assert report.state is JobState.ENDED
    assert "has no job J:1 any more" in report.output


def test_the_generator_gets_its_bed_as_a_file_of_settings(hub: BeakerHubDouble, folder: Path) -> None:
    engine(hub, folder).submit(job(beds={"bed-1": BEDS["bed-1"]}))
    file = folder / "fleet.toml"
    file.write_bytes(b64decode(str(params(uploaded(hub).findall("recipeSet/recipe")[0])["RINGROAD_LAB_FLEET_TOML"])))
    assert read_fleet(file).beds == {"bed-1": BEDS["bed-1"]}


def test_requests_wait_in_the_store_while_the_queue_is_full(hub: BeakerHubDouble, folder: Path) -> None:
    made = engine(hub, folder, most_jobs=2)
    for number in range(2):
        assert made.reserve()
        made.submit(job(f"run-{number}"))
    assert not made.reserve()
    hub.jobs[1].status = "Completed"
    assert made.reserve()


BOMB = (
    b'<!DOCTYPE a [<!ENTITY b "bb">]><methodResponse><params><param><value><string>&b;</string></value></param></params></methodResponse>'
)


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (b"<html>", "invalid XML-RPC"),
        (b"", "invalid XML-RPC"),
        (BOMB, "declares a document type"),
        (b"<methodResponse/>", "invalid XML-RPC"),
        (
            b"<methodResponse><params><param><value><int>7</int></value></param></params></methodResponse>",
            "did not return a list|did not return a structure",
        ),
        (b" " * (17 << 20), f"longer than {16 << 20} bytes"),
    ],
)
def test_an_invalid_answer_of_the_hub_is_only_an_error(hub: BeakerHubDouble, folder: Path, answer: bytes, why: str) -> None:
    made = engine(hub, folder)
    made.reserve()
    hub.answers_with = answer
    with pytest.raises(EngineError, match=why):
        made.submit(job())
    with pytest.raises(EngineError, match=why):
        made.state("J:1")


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"hub": "ftp://x"}, "not a hub URL"),
        ({"hub": "https://u:p@example.org/bkr"}, "without a password"),
        ({"recipe": {}}, "one of distro and distro_requires"),
        ({"recipe": {"distro": "x", "host_requires": "<a>"}}, "invalid XML"),
        ({"recipe": {"distro": "x", "host_requires": "memory"}}, "text between"),
        ({"password_env": "X"}, "one of password_file and password_env"),
        ({"roles": ["dut"]}, "no 'generator'"),
    ],
)
def test_invalid_settings_are_reported(hub: BeakerHubDouble, folder: Path, settings: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        engine(hub, folder, settings)


def test_without_a_password_the_engine_does_not_start(hub: BeakerHubDouble, tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match="the password for Beaker"):
        engine(hub, tmp_path)


def test_a_request_gets_its_verdict_through_beaker(hub: BeakerHubDouble, folder: Path) -> None:
    """Despite a hub that is down, a lost answer, an expired watchdog, and restarted dispatchers."""
    with ResultStore(str(folder / "results.db")) as store:
        requests = Requests(store)
        wanted = Wanted(build="ovs-3.5", scenario="BRIDGE_VETH", built_at=EPOCH)
        request_id = requests.add(Message("koji", b"{}", EPOCH), [wanted])[1][0].id
        output: list[str] = []

        def dispatcher() -> Dispatcher:
            settings = DispatcherSettings(attempts=3, retry_wait_s=0.0, poll_s=0.01)
            # Each dispatcher is a process that has ended when the next one starts.
            leases = Leases(store, "beaker", holder=f"{this_process().rpartition(':')[0]}:1.00")
            return Dispatcher(store, engine(hub, folder), leases, settings, say=output.append)

        first = dispatcher()
        with hub.is_down(), pytest.raises(EngineError, match="cannot be reached"):
            first._step()
        assert (requests.get(request_id).state, len(hub.jobs)) == (RequestState.NEW, 0)
        hub.loses_answers_to = {"jobs.upload"}
        dispatcher()._step()
        assert (requests.get(request_id).state, len(hub.jobs)) == (RequestState.SUBMITTED, 1)
        hub.loses_answers_to = set()
        hub.jobs[1].status = "Running"
        dispatcher()._step()
        assert requests.get(request_id).state is RequestState.RUNNING
        hub.jobs[1].status, hub.jobs[1].result = "Aborted", "Warn"
        hub.jobs[1].results = {"DUT": [("/", "Warn", 0, "External Watchdog Expired")]}
        dispatcher()._step()
        dispatcher()._step()
        again = requests.get(request_id)
        assert "External Watchdog Expired" in " ".join(change.why for change in requests.changes(request_id))
        assert (len(hub.jobs), again.attempts) == (2, 2)
        assert again.run_id is not None
        assert again.run_id in hub.jobs[2].whiteboard
        assert again.run_id not in hub.jobs[1].whiteboard
        # Simulates the job: it stores its measurements, and ends.
        store.add_run(tiny_run(again.run_id))
        hub.jobs[2].status, hub.jobs[2].result = "Completed", "Pass"
        dispatcher().run(threading.Event(), once=True)
        done = requests.get(request_id)
        assert (done.state, done.verdict, len(hub.jobs)) == (RequestState.DONE, "measured", 2)
