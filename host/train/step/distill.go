package step

import (
	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/compute/stage"
	"github.com/cage-qat/cage/host/model"
	"github.com/cage-qat/cage/host/model/architecture"
	"github.com/cage-qat/cage/host/model/network"
	"github.com/cage-qat/cage/internal/lists"
	"github.com/cage-qat/cage/sdk/program"
)

// Distillation describes a teacher and the distillation loss. The teacher reads the same batches,
// without quantization and with fixed parameters, which are not part of the state:
// [Compiled.LoadTeacher] loads them.
type Distillation struct {
	network.Distillation
	Teacher model.Language
}

func (p *Plan) teacherParams() (list []Tensor) {
	if p.Distillation == nil {
		return nil
	}
	return lists.Map(p.Distillation.Teacher.Params(), func(param architecture.Param) Tensor {
		return Tensor{Name: param.Name, Dims: param.Dims}
	})
}

func (p *Plan) teacherSpecs() []engine.Spec {
	return inputSpecs(p.teacherParams(), network.TeacherParam, false)
}

// LoadTeacher loads the parameters of the plan's teacher, replacing any that were loaded before.
func (c *Compiled) LoadTeacher(load LoadFunc) error {
	c.closeTeacher()
	c.teacher = stage.Tensors{}
	for _, t := range c.plan.teacherParams() {
		data, err := load.loadShaped(program.KindParam.Of(t.Name), t.Dims)
		if err == nil { // whole on each replica, even if trained parameters are sharded
			t.Name = network.TeacherParam(t.Name)
			c.teacher[t.Name], err = c.put(t, data)
		}
		if err != nil {
			c.closeTeacher()
			return err
		}
	}
	return nil
}

func (c *Compiled) closeTeacher() {
	c.teacher.Finalize()
	c.teacher = nil
}

// lossCount returns the number of means over a micro-batch that the host reads: 1 for the loss, or
// 2 for divergence and cross-entropy.
func (p *Plan) lossCount() int {
	if p.Distillation == nil {
		return 1
	}
	return 2
}

func (p *Plan) setLoss(sums []float64, res *Result) {
	n := float64(p.Accumulate)
	res.Loss = sums[0] / n
	if d := p.Distillation; d != nil {
		res.Divergence, res.CrossEntropy = sums[0]/n, sums[1]/n
		res.Loss = d.Weight*res.Divergence + (1-d.Weight)*res.CrossEntropy
	}
}
