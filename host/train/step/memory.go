package step

import (
	"cmp"
	"maps"
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

// CompiledMemory returns the memory that the steps of a plan need; see [Compiled.TrainingMemory].
func CompiledMemory(dev *engine.Device, plan Plan) (Memory, bool, error) {
	c, err := Compile(dev, plan)
	if err != nil {
		return Memory{}, false, err
	}
	defer c.Close()
	return c.TrainingMemory()
}

// TrainingMemory compiles the programs of a step that need the most memory, unless they are
// compiled, and returns the memory that steps need. It returns false if the device's compiler does
// not report it.
func (c *Compiled) TrainingMemory() (_ Memory, ok bool, err error) {
	mode := append(cage.Of(c.plan.Rules).Modes(), cage.Idle)[0]
	if c.isSingle() {
		_, err = c.single(mode)
	} else if _, err = c.quantize(&c.plan); err == nil {
		_, err = c.gradient(gradientKind{full: c.plan.FullPrecision, sum: c.plan.Accumulate > 1})
		if err == nil {
			_, err = c.update(updateKind{mode: mode, part: cage.Updating})
		}
		if err == nil {
			_, _, err = c.EvaluationMemory(0)
		}
	}
	m, ok := c.Memory()
	return m, ok && err == nil, err
}

// EvaluationMemory is [Compiled.TrainingMemory] for the losses of a batch or, unless piece is 0,
// for reading as many tokens of its sequences with a KV cache.
func (c *Compiled) EvaluationMemory(piece int) (_ Memory, ok bool, err error) {
	p := c.evaluationPlan
	if _, err = c.quantize(p); err != nil {
		return Memory{}, false, err
	}
	if piece == 0 {
		_, err = c.compileOnce(lossesKey, p.lossStage)
	} else {
		_, err = c.compileOnce(decodeKey, func() update.Stage {
			return p.decodeStage(p.Batch, piece, p.Context)
		})
	}
	m, ok := c.Memory()
	return m, ok && err == nil, err
}

// Memory returns the memory that steps and evaluations need, based on the programs compiled so far.
// It returns false if the device's compiler does not report it.
func (c *Compiled) Memory() (most Memory, ok bool) {
	divided := c.plan.dividedTensors()
	sizes := func(into map[string]int64, specs []engine.Spec) {
		for _, s := range divided.Specs(c.dev, specs) {
			into[s.Name] = s.Shape.ByteSize()
		}
	}
	state := map[string]int64{}
	sizes(state, inputSpecs(c.plan.stateTensors(), asNamed, true))
	// quantized is the executable whose outputs remain in memory.
	consider := func(e *update.Executable, quantized *update.Executable) {
		m, told := e.Memory()
		if !told {
			return
		}
		all := maps.Clone(state)
		sizes(all, e.Inputs)
		if quantized != nil {
			sizes(all, quantized.OutputSpecs())
		}
		need := Memory{Temporary: m.Temporary, Other: m.Outputs - m.Aliased + m.Code}
		for name, bytes := range all {
			if _, ok := state[name]; ok {
				need.State += bytes
			} else {
				need.Other += bytes
			}
		}
		if !ok || need.Total() > most.Total() {
			most, ok = need, true
		}
	}
	for _, w := range c.singles {
		consider(w.exec, nil)
	}
	for _, u := range c.updates {
		if u != nil {
			consider(u.Executable, c.stages[quantizeKey])
		}
	}
	for key, e := range c.stages {
		switch {
		case strings.HasPrefix(key, gradientKey):
			consider(e, c.stages[quantizeKey])
		case key == lossesKey, strings.HasPrefix(key, decodeKey):
			consider(e, cmp.Or(c.stages[evaluationKey], c.stages[quantizeKey]))
		}
	}
	return most, ok
}
