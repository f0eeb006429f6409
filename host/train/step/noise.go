package step

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"slices"
	"strings"

	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/compute/loops"
	"github.com/cage-qat/cage/host/compute/shapes"
	"github.com/cage-qat/cage/host/compute/stage"
	"github.com/cage-qat/cage/host/model"
	"github.com/cage-qat/cage/host/model/architecture"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/spec"
)

// Quantizers may take per-step inputs: the numbers of the step and of all steps, and keys of random
// bits. The host derives the keys from the seed of the run, the step, the micro-batch and the name
// of the quantized tensor, so that a resumed run draws the same numbers. It uploads one tensor of
// keys for all weights and one for all activations.

// Names of the tensors that are uploaded for quantizers.
const (
	weightKeysName     = "keys of weights"
	activationKeysName = "keys of activations" // also of other tensors that each micro-batch quantizes
	labelKeysName      = "keys of labels"      // for labels drawn from predictions
	optimizerKeysName  = "keys of optimizers"
	stepNumbersName    = "numbers of the step" // and of all steps
)

type key struct {
	node   string    // name in programs
	id     [2]uint32 // distinguishes it from other keys of the same step
	shared bool      // by both operands of a product: the same in all micro-batches and replicas
}

func newKey(node, of string, shared bool) key {
	hash := sha256.Sum256([]byte(of))
	word := binary.LittleEndian.Uint32
	return key{node, [2]uint32{word(hash[:]), word(hash[4:])}, shared}
}

// keys holds the keys that the programs of a step take.
type keys struct{ weights, activations, optimizer []key }

// findKeys lists the keys once for all steps: it takes a search among all pairs of sites.
func (p *Plan) findKeys() {
	sites := p.Model.ActivationSites(p.Batch, p.Context)
	products := productNames(sites)
	product := func(operand string) string { return cmp.Or(products[operand], operand) }
	p.keys = keys{}
	for _, t := range p.quantizedParams() {
		own := keysOf(p.Weights[t.Name], t.Name, "weight "+t.Name, "product of "+product(t.Name))
		p.keys.weights = append(p.keys.weights, own...)
	}
	if len(p.Backward) > 0 {
		operands, _ := BackwardSites(p.Model, p.Batch, p.Context)
		for _, s := range operands {
			if q, ok := p.Backward[s]; ok {
				own := keysOf(q, s.String(), s.String(), string(s.Product)+" "+product(s.Name))
				p.keys.activations = append(p.keys.activations, own...)
			}
		}
	}
	for _, s := range sites {
		if q := p.Activations[s.Name]; q != nil {
			own := keysOf(q, s.Name, "activation "+s.Name, "product of "+product(s.Name))
			p.keys.activations = append(p.keys.activations, own...)
		}
	}
	for _, r := range p.Rules {
		if r.NeedsKey() {
			node := program.KindOptimizerNoise.Of(r.Name)
			p.keys.optimizer = append(p.keys.optimizer, newKey(node, "optimizer of "+r.Name, false))
		}
	}
}

// labelKeys holds the key of the labels drawn in a micro-batch.
var labelKeys = []key{newKey("labels", "labels", false)}

// inputChecker is a quantizer. Takes reports whether its program has the named input.
type inputChecker interface{ Takes(input string) bool }

// keysOf lists the keys that a quantizer takes. name is the name of its site in programs; its noise
// is derived from owner, and shared noise from product.
func keysOf(q inputChecker, name, owner, product string) (list []key) {
	if q.Takes(spec.InputNoise) {
		list = append(list, newKey(program.KindNoise.Of(name), owner, false))
	}
	if q.Takes(spec.InputSharedNoise) {
		list = append(list, newKey(program.KindSharedNoise.Of(name), product, true))
	}
	return list
}

// productNames maps operands of products to the names of the products, the same for both operands.
func productNames(sites []model.ActivationSite) map[string]string {
	names := map[string]string{}
	for _, g := range operandGroups(sites) {
		name := strings.Join(g.weights, ",")
		for _, s := range g.sites {
			names[s.Name] = name
		}
		for _, w := range g.weights {
			names[w] = name
		}
	}
	for _, s := range sites {
		if s.Kind == model.KindKey || s.Kind == model.KindQuery { // operands of Q·Kᵀ
			names[s.Name] = architecture.LayerPrefix(architecture.LayerOf(s.Name)) + "attn.scores"
		}
	}
	return names
}

// keySpecs returns the stage inputs for the keys of one micro-batch; nil if there are no keys.
func keySpecs(name string, keys []key) []engine.Spec {
	if len(keys) == 0 {
		return nil
	}
	sharded := name == activationKeysName || name == labelKeysName
	shape := shapes.Make(shapes.Uint32, len(keys), 2)
	return []engine.Spec{{Name: name, Shape: shape, Sharded: sharded}}
}

// numberSpecs returns the stage input for the numbers of the step; nil if no quantizer takes one.
func numberSpecs[K comparable, Q inputChecker](quantizers map[K]Q) []engine.Spec {
	for _, q := range quantizers {
		if q.Takes(spec.InputStep) || q.Takes(spec.InputSteps) {
			return []engine.Spec{{Name: stepNumbersName, Shape: shapes.Make(shapes.Float32, 2)}}
		}
	}
	return nil
}

func (p *Plan) batchNumberSpecs() []engine.Spec {
	if number := numberSpecs(p.Activations); number != nil {
		return number
	}
	return numberSpecs(p.Backward)
}

func (p *Plan) stepSpecs() []engine.Spec {
	number := numberSpecs(p.Weights)
	if number == nil {
		number = p.batchNumberSpecs()
	}
	return slices.Concat(keySpecs(weightKeysName, p.keys.weights),
		keySpecs(optimizerKeysName, p.keys.optimizer), number)
}

func addKeys(in stage.Values, name string, keys []key) {
	for i, k := range keys {
		in[k.node] = in[name].At(0, i, i+1).Reshape(2)
	}
}

// addNumbers adds the numbers of the step and of all steps, if there are any.
func addNumbers(in stage.Values) {
	if n, ok := in[stepNumbersName]; ok {
		for i, name := range []string{spec.InputStep, spec.InputSteps} {
			in[name] = n.At(0, i, i+1).Reshape()
		}
	}
}

func (p *Plan) keyValues(keys []key, step, batch, replica int) []uint32 {
	ofStep := loops.Block([2]uint32{uint32(p.Seed), uint32(p.Seed >> 32)}, [2]uint32{uint32(step), 0})
	shared := loops.Block(ofStep, [2]uint32{0, 0})
	own := loops.Block(ofStep, [2]uint32{uint32(batch), uint32(replica)})
	var values []uint32
	for _, k := range keys {
		words := loops.Block(own, k.id)
		if k.shared {
			words = loops.Block(shared, k.id)
		}
		values = append(values, words[:]...)
	}
	return values
}

func (c *Compiled) addStepInputs(t stage.Tensors, set Settings) (err error) {
	for _, spec := range c.plan.stepSpecs() {
		if spec.Name == stepNumbersName {
			numbers := []float32{float32(set.Step), float32(set.Steps)}
			t[spec.Name], err = engine.Upload(c.dev, numbers, len(numbers))
		} else {
			keys := c.plan.keys.weights
			if spec.Name == optimizerKeysName {
				keys = c.plan.keys.optimizer
			}
			values := c.plan.keyValues(keys, set.Step, 0, 0)
			t[spec.Name], err = engine.Upload(c.dev, values, spec.Shape.Dimensions...)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// addBatchKeys uploads the keys for micro-batches [first, end) to t[name], replacing earlier ones.
// dims are the leading dimensions on a replica, before those of one micro-batch.
func (c *Compiled) addBatchKeys(
	t stage.Tensors, name string, keys []key, step, first, end int, dims ...int,
) (err error) {
	if len(keys) == 0 {
		return nil
	}
	var values []uint32
	for replica := range c.dev.Count() {
		for batch := first; batch < end; batch++ {
			values = append(values, c.plan.keyValues(keys, step, batch, replica)...)
		}
	}
	dims = append(dims, len(keys), 2)
	dims[0] *= c.dev.Count()
	t[name].Finalize()
	t[name], err = engine.UploadSharded(c.dev, values, true, dims...)
	return err
}
