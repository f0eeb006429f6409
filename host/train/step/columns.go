package step

import (
	"fmt"
	"slices"

	"github.com/cage-qat/cage/host/compute/calls"
	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/compute/fakequant"
	"github.com/cage-qat/cage/host/compute/stage"
	"github.com/cage-qat/cage/host/model"
	"github.com/cage-qat/cage/internal/lists"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/spec"
)

// Quantizers may compute their initial values from column statistics of both operands of a product.
// The statistics come from the full-precision model on the first batch; both operands get the same
// statistics.

func (p *Plan) calibratedGroups() []operandGroup {
	calibrated := func(o operand) bool { q := o.quantizers[o.name]; return q != nil && q.Calibrated() }
	groups := operandGroups(p.Model.ActivationSites(p.Batch, p.Context))
	return slices.DeleteFunc(groups, func(g operandGroup) bool {
		return !slices.ContainsFunc(p.operandsOf(g), calibrated)
	})
}

// checkColumns returns an error if a quantizer needs statistics of the other operand of a product,
// and the model has no such operand.
func (p *Plan) checkColumns() error {
	groups := p.calibratedGroups()
	for _, t := range p.quantizedParams() {
		grouped := slices.ContainsFunc(groups, func(g operandGroup) bool { return g.has(t.Name) })
		if p.Weights[t.Name].Calibrated() && !grouped {
			return fmt.Errorf("step: the quantizer of %s takes statistics of the activations that it is "+
				"multiplied with, but the model has none", t.Name)
		}
	}
	for _, s := range p.Model.ActivationSites(p.Batch, p.Context) {
		if q := p.Activations[s.Name]; len(s.Feeds) == 0 && q != nil && q.Calibrated() {
			return fmt.Errorf("step: the quantizer of %s takes statistics of the weight that it is "+
				"multiplied with, but there is none", s.Name)
		}
	}
	return nil
}

func (g operandGroup) columnsName(input string) string { return input + " for " + g.weights[0] }

func (p *Plan) columnSpecs() (specs []engine.Spec) {
	for _, g := range p.calibratedGroups() {
		for _, in := range spec.ColumnInputs([]int{g.sites[0].Tokens, g.sites[0].Width}) {
			shape := floatShape(in.Type.Shape...)
			specs = append(specs, engine.Spec{Name: g.columnsName(in.Name), Shape: shape})
		}
	}
	return specs
}

// columns maps weights and activation sites to those values of in that are their statistics.
func (p *Plan) columns(in stage.Values) map[string]fakequant.Given {
	of := map[string]fakequant.Given{}
	for _, g := range p.calibratedGroups() {
		columns := fakequant.Given{}
		for _, input := range spec.ColumnInputs(nil) {
			columns[input.Name] = in[g.columnsName(input.Name)]
		}
		for _, o := range p.operandsOf(g) {
			of[o.name] = columns
		}
	}
	return of
}

// columnStatistics computes the column statistics with the unquantized model, from the parameters
// in t and a batch of tokens.
func (c *Compiled) columnStatistics(t stage.Tensors, tokens []int32) (stage.Tensors, error) {
	p := &c.plan
	groups := p.calibratedGroups()
	if len(groups) == 0 {
		return nil, nil
	}
	batch, err := c.uploadBatch(tokens)
	if err != nil {
		return nil, fmt.Errorf("calibration: %w", err)
	}
	defer batch.Finalize()
	specs := append(inputSpecs(p.params(), p.forwardName(true), false), p.tokenSpec())
	of := p.batchProgram(true)
	for _, g := range groups {
		of.Record = append(of.Record, lists.Map(g.sites, model.ActivationSite.String)...)
	}
	write := func(b *program.Builder, in stage.Values) stage.Values {
		p.widen(in)
		seen, out := p.inlineModel(b, &of, in), stage.Values{}
		if b.Err() != nil {
			return nil
		}
		for _, g := range groups {
			activations := lists.Map(g.sites, func(s model.ActivationSite) program.Value {
				return seen[s.Name]
			})
			weights := lists.Map(g.weights, func(w string) program.Value {
				return in[program.KindParam.Of(w)]
			})
			a := fakequant.ColumnsOf(activations[0].Concatenate(0, activations[1:]...), true)
			out[g.columnsName(spec.InputActivationsMax)] =
				calls.MaximumOverReplicas(a[spec.InputActivationsMax])
			out[g.columnsName(spec.InputActivationsMean)] =
				calls.MeanOverReplicas(a[spec.InputActivationsMean], p.replicas)
			for name, v := range fakequant.ColumnsOf(weights[0].Concatenate(0, weights[1:]...), false) {
				out[g.columnsName(name)] = v
			}
		}
		return out
	}
	statistics := stage.Stage{Name: "statistics of columns", Inputs: specs,
		Calls: p.Model.Calls(of.Shape),
		Write: write}
	out := stage.Tensors{}
	return out, c.runOnce(statistics, out, t, stage.Tensors{tokensName: batch})
}
