"""Scenarios from names and layers: precedence of layers, and reports of problems."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import TypeAdapter

from ringroad_lab.cable.interface import CableKind
from ringroad_lab.dut.linux_bridge import LinuxBridge
from ringroad_lab.errors import ScenarioError
from ringroad_lab.guest import testpmd
from ringroad_lab.message_size import sweep
from ringroad_lab.scenario import checks
from ringroad_lab.scenario.cpu_layout import lay_out_cpus
from ringroad_lab.scenario.layers import command_line_layers
from ringroad_lab.scenario.library import Library, settings_folder
from ringroad_lab.scenario.model import Cpus, Scenario
from ringroad_lab.scenario.resolve import ResolvedScenario, resolve
from ringroad_lab.scenario.schedule import schedule
from ringroad_lab.setup.drivers import huge_pages_mib
from ringroad_lab.topology import Topology


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "scenarios").mkdir()
    (tmp_path / "hosts").mkdir()
    return tmp_path


def resolved(folder: Path, text: str, *assignments: str, cpus: frozenset[int] | None = None) -> ResolvedScenario:
    (folder / "scenarios/mine.toml").write_text(text)
    return resolve(Library(folder, "here"), "mine", command_line_layers(assignments), online_cpus=cpus)


def problems(folder: Path, text: str, *assignments: str, cpus: frozenset[int] | None = None) -> str:
    with pytest.raises(ScenarioError) as caught:
        resolved(folder, text, *assignments, cpus=cpus)
    return str(caught.value)


def test_all_layers_apply_in_their_order(folder: Path) -> None:
    keys = ["scenario", "site", "host", "user", "set"]
    text = "[labels]\n" + "\n".join(f'{key} = "scenario"' for key in keys)
    (folder / "site.toml").write_text('labels = {site = "site", host = "site", user = "site", set = "site"}\n')
    (folder / "hosts/here.toml").write_text('[labels]\nhost = "host"\nuser = "host"\nset = "host"\n')
    (folder / "hosts/elsewhere.toml").write_text('labels.scenario = "elsewhere"\n')
    (folder / "user.toml").write_text('labels = {user = "user", set = "user"}\n')
    (folder / "scenarios/mine.toml").write_text(text)
    library = Library(folder, "here")
    user = [library.user_layer(str(folder / "user.toml")), *command_line_layers(["labels.set=set"])]
    scenario = resolve(library, "mine", user).scenarios[0]
    assert scenario.labels == {key: key for key in keys}
    assert scenario.repetitions == 3


def test_the_layer_of_this_machine_can_choose_measurements(folder: Path) -> None:
    (folder / "hosts/here.toml").write_text('topologies = ["PVP"]\nduts = ["ovs-dpdk"]\n')
    scenarios = resolved(folder, 'duts = ["ovs"]').scenarios
    assert [(each.topology, each.duts[0].driver, each.physical) for each in scenarios] == [(Topology.PVP, "ovs-dpdk", CableKind.VHOST_USER)]


BOTH_ARMS = """
topologies = ["P2P", "PVP"]
duts = ["ovs", "ovs-dpdk"]
guest = "linux-bridge"
methods = ["throughput", "latency"]
[method.throughput]
search_s = 2
acceptable_loss_ratio = 0.00001
[dut.ovs-dpdk]
guest = "testpmd"
queues = 2
huge_pages = false
method.throughput.acceptable_loss_ratio = 0
"""


def test_a_device_can_have_settings_of_its_own(folder: Path) -> None:
    both = resolved(folder, BOTH_ARMS).scenarios
    found = {(turn.scenario.topology.value, turn.dut.label): turn for turn in schedule(both)}
    for topology, guests in (("P2P", (None, None)), ("PVP", ("linux-bridge", "testpmd"))):
        without, dpdk = (found[topology, label].scenario for label in ("ovs", "ovs-dpdk"))
        assert (without.guest, dpdk.guest) == guests
        assert (without.queues, dpdk.queues) == (1, 2)
        assert (without.huge_pages, dpdk.huge_pages) == (True, False)
        assert [choice.settings for choice in without.methods] == [{"search_s": 2, "acceptable_loss_ratio": 1e-5}, {}]
        assert [choice.settings for choice in dpdk.methods] == [{"search_s": 2, "acceptable_loss_ratio": 0}, {}]
        assert found[topology, "ovs-dpdk"].measurements[0].method == dpdk.methods[0]
    assert lay_out_cpus(Cpus(), frozenset(range(8)), both[1].most_queues, 1).dut == {2, 3}
    # No device of either topology has pages: the bridge has none, and the other does without.
    assert [huge_pages_mib(each) for each in both] == [0, 0]
    assert huge_pages_mib(resolved(folder, BOTH_ARMS.replace("huge_pages = false", "")).scenarios[1]) > 0
    # A recorded run is resumed with them.
    (record,) = TypeAdapter(tuple[Scenario, ...]).validate_json(TypeAdapter(tuple[Scenario, ...]).dump_json(both[1:]))
    assert record == both[1]
    assert record.duts[1].own() == {
        "guest": "testpmd",
        "queues": 2,
        "huge_pages": False,
        "method.throughput": {"search_s": 2, "acceptable_loss_ratio": 0},
    }
    assert record.of(record.duts[1]).of(record.duts[1]) == record.of(record.duts[1])


def test_the_scenario_overrides_the_layer_of_a_device(folder: Path) -> None:
    assert resolved(folder, 'duts = ["ovs-dpdk"]').scenarios[0].physical is CableKind.VHOST_USER
    assert resolved(folder, 'duts = ["ovs-dpdk"]\nphysical = "veth"').scenarios[0].physical is CableKind.VETH
    assert resolved(folder, 'duts = ["ovs-dpdk"]', "physical=veth").scenarios[0].physical is CableKind.VETH
    text = 'duts = ["a", "ovs"]\nphysical = "veth"\n[dut.a]\ndriver = "ringroad"\nphysical = "memif"'
    both = resolved(folder, text).scenarios[0]
    assert (both.physical, both.physical_by_dut) == (CableKind.MEMIF, {"ovs": CableKind.VETH})
    assert resolved(folder, text, "physical=veth").scenarios[0].physical_by_dut == {}


def test_a_scenario_of_two_topologies_becomes_two(folder: Path) -> None:
    p2p, pvp = resolved(folder, 'duts = ["ovs-dpdk"]\ntopologies = ["P2P", "PVP"]\nguest_cables = "veth"').scenarios
    assert (p2p.topology, p2p.guest, p2p.guest_cables) == (Topology.P2P, None, None)
    assert (pvp.topology, pvp.guest, pvp.guest_cables) == (Topology.PVP, "testpmd", CableKind.VETH)
    assert p2p.name == pvp.name == "mine"


def test_the_layer_of_a_topology_sets_a_guest(folder: Path) -> None:
    scenario = resolved(folder, 'duts = ["linux-bridge"]\ntopologies = ["PVP"]').scenarios[0]
    assert (scenario.guest, scenario.guest_cables) == ("testpmd", None)


def test_a_file_is_a_scenario_named_after_it(tmp_path: Path) -> None:
    (tmp_path / "new-one.toml").write_text('duts = ["ovs"]\n')
    found = resolve(Library(tmp_path / "none", "here"), str(tmp_path / "new-one.toml"))
    assert found.name == "new-one"


def test_a_scenario_of_the_user_overrides_one_of_the_package(folder: Path) -> None:
    (folder / "scenarios/OVS_VANILLA.toml").write_text('duts = ["linux-bridge"]\n')
    assert resolve(Library(folder, "here"), "OVS_VANILLA").scenarios[0].duts[0].driver == "linux-bridge"


def test_devices_that_a_later_layer_leaves_out_can_stay_described(folder: Path) -> None:
    text = 'duts = ["a", "ovs"]\n[dut.a]\ndriver = "ringroad"\nphysical = "veth"'
    assert [dut.label for dut in resolved(folder, text, "duts=[ovs]").scenarios[0].duts] == ["ovs"]


def test_a_site_can_configure_unused_drivers(folder: Path) -> None:
    (folder / "site.toml").write_text("[dut.ovs-dpdk.settings]\nemc_insert_inv_prob = 0\n")
    assert resolved(folder, 'duts = ["ovs"]').scenarios[0].duts[0].settings == {}


def test_all_problems_are_reported_together_with_their_origins(folder: Path) -> None:
    text = problems(folder, 'duts = ["ovs"]\nqueus = 2\nrepetitions = 0\n[dut.ovs]\nphysical = "vetj"', "flows=no")
    assert "4 problems" in text
    assert f"queus: no such setting; did you mean 'queues'? (scenario, {folder}/scenarios/mine.toml:2)" in text
    assert f"repetitions: has to be greater than or equal to 1, not 0 (scenario, {folder}/scenarios/mine.toml:3)" in text
    assert "dut.ovs.physical: there is no cable 'vetj'; did you mean 'veth'?" in text
    assert "flows: has to be a whole number, not 'no' (--set flows)" in text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('duts = ["ovz"]', "duts: there is no driver 'ovz'; did you mean 'ovs'?"),
        ('duts = ["new"]\n[dut.new]\ndriver = "ringrod"', "dut.new.driver: there is no driver 'ringrod'; did you mean 'ringroad'?"),
        ('duts = ["ovs", "ovs"]', "duts: ovs is given twice"),
        ("duts = []", "duts: needs at least one"),
        ('duts = ["a name!"]', "scenario mine: duts.0: 'a name!': letters, digits and _ . + - are allowed"),
        ('[dut."a name!"]\ndriver = "ovs"', "dut.a name!: 'a name!': letters, digits and _ . + - are allowed"),
        (f'[dut.ringroad]\ndriver = "{"a" * 300}"', "dut.ringroad.driver: String should have at most 64 characters"),
        ("labels.version = 3.1", """labels.version: has to be a text, not 3.1: write it in quotes, as '"3.1"'"""),
        (
            'duts = ["ovs-dpdk"]\nphysical = "veth"\nqueues = 2',
            "queues: ovs-dpdk over veth has one queue pair, not 2 (scenario, ",
        ),
        (
            'duts = ["ringroad"]\ntopologies = ["PVP"]\nguest = "qemu-linux-bridge"\nqueues = 2',
            "queues: guest qemu-linux-bridge over vhost-user has one queue pair, not 2",
        ),
        (
            'methods = ["message-size"]\ntopologies = ["PVP"]',
            "topologies: message-size measures between two stations: P2P, not PVP",
        ),
        (
            'methods = ["live-migration"]\nduts = ["ovs-dpdk"]',
            "duts: live-migration: ovs-dpdk is no learning switch of several ports",
        ),
        ('duts = ["ovs"]\n[dut.osv]\nphysical = "veth"', "dut.osv: describes a device that `duts` does not name; did you mean 'ovs'?"),
        ('duts = ["ovs"]\n[dut.ovs]\nsettngs = {}', "dut.ovs.settngs: no such setting; did you mean 'settings'?"),
        ('duts = ["ovs"]\n[dut.ovs.settings]\nveth_mod = 1', "dut.ovs.settings.veth_mod: no such setting; did you mean 'veth_mode'?"),
        ('duts = ["ovs"]\n[dut.ovs.settings]\nveth_mode = "af-xdp"', "dut.ovs.settings.veth_mode: 'af-xdp' is not one of system, afxdp"),
        (
            'duts = ["ringroad"]\nphysical = "veth"\n[dut.ringroad.settings]\nveth_mode = "kernel"',
            "dut.ringroad.settings: throughput cannot measure it: frames that pass within the kernel do not reach the generator's AF_XDP",
        ),
        (
            '[dut.ringroad.settings]\nveth_mode = "kernel"\nforwarding = "rules"',
            'dut.ringroad.settings: veth_mode = "kernel" needs forwarding = "learn"',
        ),
        (
            '[dut.ringroad.settings]\nshared_buffers = true\nforwarding = "rules"',
            'dut.ringroad.settings: shared_buffers needs veth_mode = "xdp", and forwarding = "learn" or "normal"',
        ),
        ('duts = ["ovs"]\nphysical = "memif"', "physical: ovs has no ports for memif, only for nic, veth"),
        ('duts = ["ovs"]\nphysical = "tap"', "physical: the generator has no ports for tap"),
        (
            f"{BOTH_ARMS}physical = 'veth'",
            "dut.ovs-dpdk.queues: ovs-dpdk over veth has one queue pair, not 2",
        ),
        (BOTH_ARMS.replace('"testpmd"', '"testpmt"'), "dut.ovs-dpdk.guest: there is no guest 'testpmt'; did you mean 'testpmd'?"),
        (
            BOTH_ARMS.replace('guest = "testpmd"', 'guest_cables = "tap"'),
            "dut.ovs-dpdk.guest_cables: tap does not join ovs-dpdk and linux-bridge; ",
        ),
        (
            BOTH_ARMS.replace("acceptable_loss_ratio = 0\n", "acceptable_loss = 0\n"),
            "dut.ovs-dpdk.method.throughput.acceptable_loss: no such setting; did you mean 'acceptable_loss_ratio'?",
        ),
        (f"{BOTH_ARMS}method.thruput.search_s = 1", "dut.ovs-dpdk.method.thruput: there is no such method; did you mean 'throughput'?"),
        ('duts = ["ringroad"]\nphysical = "netmap"', "physical: the generator has no ports for netmap"),
        ('methods = ["thruput"]', "methods: there is no method 'thruput'; did you mean 'throughput'?"),
        ("[method.throughput]\nsearch_s = 0", "method.throughput.search_s: has to be greater than 0, not 0"),
        ('[method.throughput]\nsearch_s = "1"', "method.throughput.search_s: has to be a valid number, not '1'"),
        ("[method.latancy]\nrepeats = 1", "method.latancy: there is no such method; did you mean 'latency'?"),
        ("frames = [64, 64]", "frames: 64 is given twice"),
        ('topologies = ["P2P", "P2P"]', "topologies: P2P is given twice"),
        ("frames = [63]", "frames.0: frame size 63: from 64 to 9216 bytes"),
        ('frames = ["big"]', "frames.0: frame size 'big'"),
        ("frames = 64", "frames: has to be a list, not 64"),
        ('duts = ["ovs"]\ntopologies = ["PVP"]\nguest = "testpdm"', "guest: there is no guest 'testpdm'; did you mean 'testpmd'?"),
        (
            'duts = ["linux-bridge"]\ntopologies = ["PVP"]\nguest_cables = "vhost-user"',
            "guest_cables: vhost-user does not join linux-bridge",
        ),
        ('topologies = ["PVP", "P2p"]', "topologies.1: 'P2p' is not one of P2P, PVP, PVVP; did you mean 'P2P'?"),
        ('duts = ["ovs"]\nphysical = "nic"', "private: has to be false with network cards"),
        ('duts = ["ovs"]\nphysical = "nic"\nprivate = false', "host.local.nics: 2 pairs of network cards are needed"),
        ('duts = ["ovs"]\n[dut.ovs]\nhost = "lab1"', "dut.ovs.host: there is no host 'lab1'"),
        ('duts = ["ovs"]\n[dut.ovs]\nhost = "lab1"\n[host.lab1]\nuser = "me"', "another machine needs network cards"),
        ("[cpus]\ndut = [99]", "cpus.dut: there is no processor 99 here; there are 0, 1"),
    ],
)
def test_wrong_settings_are_reported(folder: Path, text: str, expected: str) -> None:
    assert expected in problems(folder, text, cpus=frozenset({0, 1}))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('build = {prefix = "/a", program = "/b"}', "dut.new.build: name one of program, prefix, package, git, image"),
        ('build.prefix = "opt/ovs"', "'opt/ovs' is not an absolute path"),
        ('guest_build.kernel = "/kernel"', "guest testpmd has no kernel of its own: use a qemu guest"),
        ('host = "other"\nphysical = "nic"\nbuild.image = "/image"', "unpack it on other, and set `prefix` to its folder there"),
    ],
)
def test_an_invalid_build_is_rejected(folder: Path, text: str, expected: str) -> None:
    scenario = 'topologies = ["PVP"]\nguest = "testpmd"\nduts = ["new"]\n[dut.new]\ndriver = "ovs-dpdk"\n'
    assert expected in problems(folder, scenario + text)


def test_a_device_can_run_packages_next_to_another_build_of_itself(folder: Path) -> None:
    text = 'duts = ["new", "ovs"]\n[dut.new]\ndriver = "ovs"\nbuild.package = ["openvswitch-switch=3.4", "/one.deb"]\n'
    new, ovs = resolved(folder, text).scenarios[0].duts
    assert str(new.build) == "package openvswitch-switch=3.4, /one.deb"
    assert ovs.build is None


def test_a_missing_cable_between_device_and_guest_is_reported(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class TapGuest(testpmd.TestpmdGuest):
        carries = frozenset({CableKind.TAP})

    (folder / "scenarios/mine.toml").write_text('duts = ["ovs-dpdk"]\ntopologies = ["PVP"]\nguest = "tap-guest"\n')
    monkeypatch.setattr(checks, "GUESTS", {"tap-guest": TapGuest})
    with pytest.raises(ScenarioError, match=r"guest: no cable joins ovs-dpdk \(veth, vfio, vhost-user\) and tap-guest \(tap\)"):
        resolve(Library(folder, "here"), "mine")


@pytest.mark.parametrize(("stations", "cables"), [("namespaces", "veth"), ("guests", "netmap or tap or vhost-user")])
def test_stations_and_a_device_without_a_common_cable_are_rejected(
    folder: Path, stations: str, cables: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class NicSwitch(LinuxBridge):
        carries = frozenset({CableKind.NIC})

    text = f'methods = ["message-size"]\nduts = ["linux-bridge"]\n[method.message-size]\nstations = "{stations}"\n'
    (folder / "scenarios/mine.toml").write_text(text)
    monkeypatch.setattr(sweep, "DUTS", {"linux-bridge": NicSwitch})
    with pytest.raises(ScenarioError, match=f"duts: message-size: {stations} are joined by {cables}, and linux-bridge has no ports"):
        resolve(Library(folder, "here"), "mine")


def test_a_device_on_another_machine_over_network_cards(folder: Path) -> None:
    text = """
    duts = ["ovs"]
    physical = "nic"
    private = false
    [dut.ovs]
    host = "lab1"
    [host.lab1]
    address = "192.0.2.1"
    nics = [
        { generator_interface = "eth1", dut_interface = "eth3" },
        { generator_interface = "eth2", dut_interface = "eth4" },
    ]
    """
    (folder / "hosts/lab1.toml").write_text("[cpus]\ndut = [8]\n")
    scenario = resolved(folder, text, cpus=frozenset({0, 1})).scenarios[0]
    assert (scenario.hosts[0].name, scenario.hosts[0].address, scenario.hosts[0].port) == ("lab1", "192.0.2.1", 22)
    assert scenario.cpus.dut == {8}


def test_conditions_that_can_distort_a_measurement_give_warnings(folder: Path) -> None:
    text = 'duts = ["ovs-dpdk"]\nqueues = 4\ntopologies = ["PVP"]\n[cpus]\ndut = [1]\ngenerator = [1]'
    warnings = resolved(folder, text, cpus=frozenset({0, 1})).warnings
    assert warnings == (
        "PVP: generator and device share processor 1: they take time from each other",
        "PVP: 4 queues, but 1 processor for the device: queues share them",
    )
    assert resolved(folder, 'duts = ["ovs-dpdk"]\nqueues = 4', cpus=frozenset(range(8))).warnings == ()


def test_a_guest_that_no_topology_uses_gives_a_warning(folder: Path) -> None:
    warning = 'guest testpmd is not used: P2P has no guest; topologies = ["PVP"] has one (--set guest)'
    assert resolved(folder, 'duts = ["ovs"]', "guest=testpmd").warnings == (warning,)
    # A guest that a later layer leaves out by choosing other topologies gives none.
    text = 'topologies = ["PVP"]\nguest = "testpmd"'
    assert resolved(folder, text, "topologies=[P2P]").warnings == ()
    (folder / "site.toml").write_text('guest = "testpmd"\n')
    assert resolved(folder, 'topologies = ["P2P", "PVP"]').warnings == ()


def test_warnings_refer_to_the_processors_that_the_lab_assigns(folder: Path) -> None:
    text = 'duts = ["ovs-dpdk"]\ntopologies = ["P2P", "PVP"]'
    warnings = resolved(folder, text, cpus=frozenset({0, 1})).warnings
    assert warnings == ("PVP: device and guest 1 share processor 1: they take time from each other",)
    assert resolved(folder, text, cpus=frozenset({0, 1, 2})).warnings == ()


def test_an_unreadable_folder_of_settings_is_reported(tmp_path: Path) -> None:
    library = Library(tmp_path / ("a" * 300), "here")
    with pytest.raises(ScenarioError, match="File name too long; RINGROAD_LAB_CONFIG names another"):
        resolve(library, "OVS_VANILLA")


def test_unknown_names_give_suggestions(folder: Path) -> None:
    library = Library(folder, "here")
    with pytest.raises(ScenarioError, match="did you mean 'compare-switches'"):
        library.scenario("compare-switchs")
    with pytest.raises(ScenarioError, match="did you mean 'quick'"):
        library.user_layer("quik")
    with pytest.raises(ScenarioError, match="No such file"):
        library.user_layer("./none.toml")


def test_the_folder_of_settings_follows_the_environment() -> None:
    assert settings_folder({"RINGROAD_LAB_CONFIG": "/a", "XDG_CONFIG_HOME": "/b", "HOME": "/c"}) == Path("/a")
    assert settings_folder({"XDG_CONFIG_HOME": "/b", "HOME": "/c"}) == Path("/b/ringroad-lab")
    assert settings_folder({"HOME": "/c"}) == Path("/c/.config/ringroad-lab")


def test_a_driver_name_cannot_read_files_elsewhere(folder: Path) -> None:
    assert Library(folder, "here").dut_layer("../topology/PVP") is None
    assert Library(folder, "here").dut_layer("../defaults") is None
