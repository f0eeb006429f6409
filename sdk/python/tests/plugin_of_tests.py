"""A quantizer that gets into the trouble that it is asked for, and an optimizer that wants no tensor."""

import logging
import sys

from cage_sdk import Description, Optimizer, Quantized, Quantizer, Refusal, String, serve


class Quantize(Quantizer):
    description = Description("of-tests", parameters=[String("trouble", "", "what goes wrong")])

    def quantize(self, b, x, site):
        trouble = site.text("trouble")
        if trouble == "refuse":
            raise Refusal("use another")
        if trouble == "divide":
            1 / 0
        if trouble == "surrogate":
            raise ValueError("half \ud800 of a pair")
        if trouble == "exit":
            sys.exit("no license")
        if trouble == "interrupt":
            raise KeyboardInterrupt
        if trouble == "shape":
            x + b.zeros(7)
        if trouble == "print":
            print("printed")
            logging.warning("logged")
            logging.warning("%d items", "three")
            try:
                1 / 0
            except ZeroDivisionError:
                logging.exception("could not")
        return Quantized(x.round())


class Optimize(Optimizer):
    description = Description("of-tests")

    def accepts(self, t):
        return False

    def init(self, b, x, t):
        return {}

    def update(self, b, given, t):
        return given.gradient, {}


serve(Quantize(), Optimize())
