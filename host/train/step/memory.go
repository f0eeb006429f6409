package step

import (
	"strings"

	"github.com/cage-qat/cage/host/cage"
	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/compute/update"
)

// Memory is the memory per device that training steps need according to the device's compiler, in
// bytes.
type Memory struct {
	State     int64 // parameters and the states of optimizers and quantizers, always allocated
	Temporary int64 // temporary values of the program that needs most
	// Other is the rest of the program's inputs and outputs, such as tokens and a teacher, and its
	// code. If a step consists of several programs, it includes the tensors passed between them.
	Other int64
}

// Total returns State + Temporary + Other.
func (m Memory) Total() int64 { return m.State + m.Temporary + m.Other }

// CompiledMemory compiles only the program of a step that needs the most memory, and returns the
// memory that steps need. It returns false if the device's compiler does not report it.
func CompiledMemory(dev *engine.Device, plan Plan) (Memory, bool, error) {
	c, err := Compile(dev, plan)
	if err != nil {
		return Memory{}, false, err
	}
	defer c.Close()
	mode := append(cage.Of(c.plan.Rules).Modes(), cage.Idle)[0]
	if c.isSingle() {
		_, err = c.single(mode)
	} else {
		if _, err = c.quantize(&c.plan); err == nil {
			_, err = c.gradient(gradientKind{full: c.plan.FullPrecision, sum: c.plan.Accumulate > 1})
		}
	}
	if err != nil {
		return Memory{}, false, err
	}
	m, ok := c.Memory()
	return m, ok, nil
}

// Memory returns the memory that steps need, based on the programs compiled so far. It returns
// false if the device's compiler does not report it.
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
	consider := func(e *update.Executable, beside []engine.Spec) {
		m, told := e.Memory()
		if !told {
			return
		}
		clear(sizes)
		state := add(inputSpecs(c.plan.stateTensors(), asNamed, true))
		other := add(append(beside, e.Inputs...)) - state
		other += m.Outputs - m.Aliased + m.Code
		need := Memory{State: state, Temporary: m.Temporary, Other: other}
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
				quantized = q.OutputSpecs()
			}
			consider(e, quantized)
		}
	}
	return most, ok
}
