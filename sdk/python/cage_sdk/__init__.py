"""Plugins of cage in Python: quantizers and optimizers.

A plugin is a subclass of Quantizer or Optimizer and a call of serve. cage_sdk.jax makes plugins of functions in JAX.
"""

from .infer import KEY, DType, Type
from .optimizer import (
    Averaged,
    Collector,
    Due,
    Optimizer,
    OptimizerProgram,
    Pacer,
    Part,
    Refresher,
    Selective,
    Tensor,
    UpdateInput,
    build_optimizer,
)
from .plugin import Bool, Choice, Description, Float, Int, Parameter, Refusal, State, StateTensor, String
from .program import Builder, Node, Program, ProgramError, Value
from .quantizer import Packer, Quantized, Quantizer, QuantizerProgram, Site, Trainable, build_quantizer
from .serve import serve

__all__ = [
    "KEY", "Averaged", "Bool", "Builder", "Choice", "Collector", "DType", "Description", "Due", "Float", "Int", "Node",
    "Optimizer", "OptimizerProgram", "Pacer", "Packer", "Parameter", "Part", "Program", "ProgramError", "Quantized",
    "Quantizer", "QuantizerProgram", "Refresher", "Refusal", "Selective", "Site", "State", "StateTensor", "String",
    "Tensor", "Trainable", "Type", "UpdateInput", "Value", "build_optimizer", "build_quantizer", "serve",
]  # fmt: skip
