package step

import (
	"strings"

	"github.com/cage-qat/cage/host/cage"
	"github.com/cage-qat/cage/host/compute/engine"
)

// Memory is what the steps of a training need of each device's memory by the device's compiler, in
// bytes.
type Memory struct {
	State     int64 // parameters and the states of optimizers and quantizers, which are there all the time
	Temporary int64 // values inside the program that needs most
	// Other is the rest of what it reads and returns, such as tokens and a teacher, and its code.
	// Where a step is several programs, quantized weights and gradients, which one program leaves
	// for the next, are among it.
	Other int64
}

// Total returns the sum of what is in the device's memory.
func (m Memory) Total() int64 { return m.State + m.Temporary + m.Other }

// CompiledMemory compiles, of the programs of a step, only the one that needs most memory, and
// returns what steps need. It returns false if the device's compiler does not tell.
func CompiledMemory(dev *engine.Device, plan Plan) (Memory, bool, error) {
	c, err := uncompiled(dev, plan)
	if err != nil {
		return Memory{}, false, err
	}
	defer c.Close()
	mode := append(cage.Of(c.plan.Rules).Modes(), cage.Idle)[0]
	if c.isSingle() {
		_, err = c.single(mode)
	} else {
		if _, err = c.quantize(); err == nil {
			_, err = c.gradient(gradientKind{full: c.plan.FullPrecision, sum: c.plan.Accumulate > 1})
		}
	}
	if err != nil {
		return Memory{}, false, err
	}
	m, ok := c.Memory()
	return m, ok, nil
}

// Memory returns what steps need, of the programs that are compiled. It returns false if the
// device's compiler does not tell.
func (c *Compiled) Memory() (most Memory, ok bool) {
	divided, sizes := c.plan.dividedTensors(), map[string]int64{} // in bytes, by name
	add := func(specs []engine.Spec) (sum int64) {
		for _, s := range divided.Specs(c.dev, specs) {
			sizes[s.Name] = s.Shape.ByteSize()
		}
		for _, n := range sizes {
			sum += n
		}
		return sum
	}
	consider := func(e *executable, beside []engine.Spec) {
		m, told := e.exec.Memory()
		if !told {
			return
		}
		clear(sizes)
		state := add(inputSpecs(c.plan.stateTensors(), asNamed, true))
		other := add(append(beside, e.inputs...)) - state
		need := Memory{State: state, Temporary: m.Temporary, Other: other + m.Outputs - m.Aliased + m.Code}
		if !ok || need.Total() > most.Total() {
			most, ok = need, true
		}
	}
	for _, w := range c.singles {
		consider(w.exec, nil)
	}
	for key, e := range c.stages {
		if strings.HasPrefix(key, gradientKey) {
			var quantized []engine.Spec
			if q := c.stages[quantizeKey]; q != nil {
				quantized = q.outputSpecs()
			}
			consider(e, quantized)
		}
	}
	return most, ok
}
