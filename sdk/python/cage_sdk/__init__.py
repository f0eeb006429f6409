"""Plugins of cage in Python: quantizers and optimizers.

A plugin is a subclass of Quantizer or Optimizer and a call of serve. cage_sdk.jax makes plugins of functions in JAX.
"""

from .infer import KEY, DType, Type
from .optimizer import (
    Averaged,
    Collector,
    Compact,
    Due,
    Optimizer,
    OptimizerProgram,
    Pacer,
    Part,
    Prober,
    Refresher,
    Rounded,
    Sampler,
    Selective,
    Tensor,
    UpdateInput,
    build_optimizer,
)
from .plugin import Bool, Choice, Claim, Description, Float, Int, Parameter, Refusal, State, StateTensor, Storage, String
from .program import Builder, Node, Program, ProgramError, Value
from .quantizer import (
    Columns,
    Constrained,
    Differentiator,
    Gradients,
    Grid,
    Maximal,
    Packer,
    Quantized,
    Quantizer,
    QuantizerProgram,
    Sharer,
    Site,
    Stateful,
    Trainable,
    affine,
    build_quantizer,
    e2m1,
    integers,
    odd_integers,
    zero_points,
)
from .serve import serve

__all__ = [
    "KEY", "Averaged", "Bool", "Builder", "Choice", "Claim", "Collector", "Columns", "Compact", "Constrained", "DType", "Description",
    "Differentiator", "Due", "Float", "Gradients", "Grid", "Int", "Maximal", "Node", "Optimizer", "OptimizerProgram", "Pacer", "Packer", "Parameter", "Part",
    "Prober", "Program", "ProgramError", "Quantized", "Quantizer", "QuantizerProgram", "Refresher", "Refusal",
    "Rounded", "Sampler", "Selective", "Sharer", "Site", "State", "StateTensor", "Stateful", "Storage", "String", "Tensor",
    "Trainable", "Type", "UpdateInput", "Value", "affine", "build_optimizer", "build_quantizer", "e2m1", "integers", "odd_integers",
    "serve", "zero_points",
]  # fmt: skip
