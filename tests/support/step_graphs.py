"""The graphs of training steps after TensorFlow's optimisation, and the sums in them."""

import os

import trials
from tensorflow.python.eager import context

from xtts.planning.sizes import SIZES


def optimised_nodes(name, **options):
    """The nodes of a stage's steps after TensorFlow's graph optimisation."""
    context.enable_run_metadata()
    try:
        trials.trial(name, **options)
        graphs = context.context().export_run_metadata().function_graphs
    finally:
        context.context().disable_run_metadata()
    whole = [graph.post_optimization_graph for graph in graphs]
    return [node for graph in whole for part in (graph, *graph.library.function) for node in _nodes(part)]


def _nodes(graph):
    return graph.node if hasattr(graph, "node") else graph.node_def


def long_sums(nodes):
    """The sums of three or more terms, whose order may vary."""
    return [node.name for node in nodes if node.op == "AddN" and node.attr["N"].i > 2]


def check_three_mirrored_devices(log):
    """The body of a process that exits with 0 if all is well: devices can be split only before TensorFlow starts."""
    os.dup2(os.open(log, os.O_WRONLY | os.O_CREAT), 2)
    SIZES["tiny"] = trials.SIZE
    placement = trials.place_devices(trials.DevicesSection(model_gpu=(0, 1, 2)))
    nodes = optimised_nodes("gpt", rows=2, placement=placement)
    assert placement.replicas == 3
    assert sum(node.op == "ResourceApplyAdam" for node in nodes) > 3 * 20
    assert not long_sums(nodes)
