package step

import (
	"maps"
	"strings"

	"github.com/cage-qat/cage/host/cage"
	"github.com/cage-qat/cage/host/compute/device"
	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/compute/stage"
	"github.com/cage-qat/cage/host/model"
)

// Memory is the memory per device that training steps or evaluations need, according to the
// device's compiler, in bytes.
type Memory struct {
	State     int64 // parameters and the states of optimizers and quantizers, always allocated
	Temporary int64 // temporary values of the program that needs most
	// Other is the rest of the program's inputs and outputs, such as tokens and a teacher, and its
	// code. If a step consists of several programs, it includes the tensors passed between them.
	Other int64
}

// Total returns State + Temporary + Other.
func (m Memory) Total() int64 { return m.State + m.Temporary + m.Other }

// TrainingMemory compiles the programs of a step that need the most memory, unless they are
// compiled, and returns the memory that steps need. It returns false if the device's compiler does
// not report it.
func (c *Compiled) TrainingMemory() (_ Memory, ok bool, err error) {
	mode := append(cage.Of(c.plan.Rules).Modes(), cage.Idle)[0]
	if c.isSingle() {
		_, err = c.single(mode)
	} else if _, err = c.quantize(&c.plan); err == nil {
		_, err = c.gradient(gradientKind{full: c.plan.FullPrecision, sum: c.plan.Accumulate > 1})
		if err == nil && c.dev.SharesMemory() { // elsewhere it takes long to compile, and needs less
			_, err = c.update(updateKind{mode: mode, part: cage.Updating})
		}
	}
	m, ok := c.Memory()
	return m, ok && err == nil, err
}

// EvaluationMemory is [Compiled.TrainingMemory] for the losses of a batch or, if generates is set,
// for continuing as many sequences up to the model's context, if it reads sequences. It compiles
// the program of the first texts; caches of longer ones are added.
func (c *Compiled) EvaluationMemory(generates bool) (m Memory, ok bool, err error) {
	p := c.evaluationPlan
	if _, err = c.quantize(p); err != nil {
		return Memory{}, false, err
	}
	more := int64(0) // bytes of longer caches
	if language, reads := p.Model.(model.Language); generates && reads {
		caches := func(length int) int64 {
			shape := floatShape(language.CacheDims(p.Batch, length)...)
			return int64(len(cacheNames(language))) * shape.ByteSize()
		}
		more = max(0, caches(p.Context)-caches(2*Piece))
		_, err = c.decoder(p.Batch, Piece, 2*Piece)
	} else {
		_, err = c.compileOnce(lossesKey, p.lossStage)
	}
	m, ok = c.Memory()
	m.Other += more
	return m, ok && err == nil, err
}

// StateBytes returns the bytes of parameters and of the states of optimizers and quantizers.
func (c *Compiled) StateBytes() (sum int64) {
	for _, s := range inputSpecs(c.plan.stateTensors(), asNamed, true) {
		sum += s.Shape.ByteSize()
	}
	return sum
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
	state, teacher := map[string]int64{}, c.plan.teacherSpecs()
	sizes(state, inputSpecs(c.plan.stateTensors(), asNamed, true))
	// quantized is the executable whose outputs remain in memory.
	consider := func(e, quantized *stage.Executable, decodes bool) {
		m, told := e.Memory()
		if !told {
			return
		}
		all := maps.Clone(state)
		sizes(all, teacher)
		sizes(all, e.Inputs)
		if quantized != nil {
			sizes(all, quantized.OutputSpecs())
		}
		need := Memory{Temporary: m.Temporary, Other: m.Outputs - m.Aliased + m.Code}
		if decodes && c.dev.Precision() == device.BFloat16 { // it keeps copies ([Evaluator.inBFloat16])
			for i, in := range e.Inputs {
				if e.ReadsBFloat16(i) {
					need.Other += in.Shape.ByteSize() / 2
				}
			}
		}
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
		consider(w.exec, nil, false)
	}
	for _, u := range c.updates {
		if u != nil {
			consider(u.Executable, c.stages[quantizeKey], false)
		}
	}
	evaluated := c.stages[evaluationKey]
	if c.evaluationPlan == &c.plan {
		evaluated = c.stages[quantizeKey]
	}
	for key, e := range c.stages {
		switch {
		case strings.HasPrefix(key, gradientKey):
			consider(e, c.stages[quantizeKey], false)
		case key == lossesKey, strings.HasPrefix(key, decodeKey):
			consider(e, evaluated, key != lossesKey)
		}
	}
	return most, ok
}
