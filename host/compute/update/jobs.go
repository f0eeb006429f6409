package update

import (
	"strings"

	"github.com/cage-qat/cage/host/method/cage"
	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/program"
)

// Names of tensors. Those of parameters and states are also the names in checkpoints.

// Param returns the name of a trained tensor.
func Param(tensor string) string { return "param/" + tensor }

// State returns the name of a state tensor that the optimizer of a trained tensor keeps.
func State(tensor, state string) string { return "state/" + tensor + "/" + state }

// Gradient returns the name of the gradient with respect to a trained tensor.
func Gradient(tensor string) string { return "gradient/" + tensor }

// Value returns the name of the quantized value of a weight, as products use it.
func Value(tensor string) string { return "value/" + tensor }

// Trained returns the name of the trained tensor t of the quantizer for a weight or an
// activation site.
func Trained(site, t string) string { return "quantizer." + site + "." + t }

// Rules makes the jobs of update rules. A job replaces the parameter and the states, and
// consumes the gradient.
func Rules(rules []cage.Rule) ([]Job, error) {
	jobs := make([]Job, len(rules))
	for i, r := range rules {
		p, err := r.Program()
		if err != nil {
			return nil, err
		}
		jobs[i] = bind(r.Name, p)
		jobs[i].Donated[cage.InputGradient] = true
	}
	return jobs, nil
}

// Observations makes the jobs with which optimizers observe gradients before a refresh.
func Observations(rules []cage.Rule) ([]Job, error) {
	var jobs []Job
	for _, r := range rules {
		p, err := r.ObserveProgram()
		if err != nil {
			return nil, err
		}
		if p != nil {
			jobs = append(jobs, bind(r.Name, p))
		}
	}
	return jobs, nil
}

// bind binds the program of a tensor's rule to tensors, by the names of its inputs and outputs.
func bind(tensor string, p *program.Program) Job {
	j := Job{Tensor: tensor, Program: p, Inputs: map[string]string{}, Outputs: map[string]string{}, Donated: map[string]bool{}}
	for _, in := range p.Inputs {
		if name, ok := tensorOf(tensor, in.Name); ok {
			j.Inputs[in.Name] = name
		}
	}
	for _, out := range p.Outputs {
		if name, ok := tensorOf(tensor, out.Name); ok {
			j.Outputs[out.Name] = name
			if j.Inputs[out.Name] == name {
				j.Donated[out.Name] = true
			}
		}
	}
	return j
}

// tensorOf returns the name of the tensor that an input or output of a rule's program is
// bound to; ok is false for scalars and measures.
func tensorOf(tensor, input string) (name string, ok bool) {
	if state, cut := strings.CutPrefix(input, sdk.StatePrefix); cut {
		return State(tensor, state), true
	}
	if t, cut := strings.CutPrefix(input, sdk.TrainedPrefix); cut {
		return Param(Trained(tensor, t)), true
	}
	switch {
	case input == cage.InputX:
		return Param(tensor), true
	case input == cage.InputGradient:
		return Gradient(tensor), true
	case input == cage.InputQuantized:
		return Value(tensor), true
	}
	return "", false
}

// Inits makes the jobs with which optimizers initialize states from parameters.
func Inits(rules []cage.Rule) []Job {
	var jobs []Job
	for _, r := range rules {
		if r.Optimizer.Init != nil {
			jobs = append(jobs, bind(r.Name, r.Optimizer.Init))
		}
	}
	return jobs
}
