package quantize

import (
	"context"
	"encoding/json/jsontext"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/cage-qat/cage/host/compute/device"
	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/deploy/posttrain"
	"github.com/cage-qat/cage/host/deploy/trained"
	"github.com/cage-qat/cage/host/model/architecture"
	"github.com/cage-qat/cage/host/model/huggingface"
	"github.com/cage-qat/cage/host/model/safetensors"
	"github.com/cage-qat/cage/host/train/build"
	"github.com/cage-qat/cage/host/train/config"
	"github.com/cage-qat/cage/host/train/plugin"
	"github.com/cage-qat/cage/host/train/provenance"
	"github.com/cage-qat/cage/host/train/rundir"
	"github.com/cage-qat/cage/internal/atomicfile"
	"github.com/cage-qat/cage/internal/plainjson"
	"github.com/cage-qat/cage/internal/vfs"
	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/spec"
)

// pyTorchFile holds the quantizers of a Hugging Face checkpoint beside it, as cage_torch.save
// writes it: see docs/reference/formats.md.
const pyTorchFile = "quantizers.cage"

// Import is [trained.Import], but if cage-torch has trained the checkpoint, the run has its
// quantized weights, as [Run] makes them: PyTorch quantizes each layer by itself, while a weight
// of cage may have the rows of several layers, such as queries, keys and values. The second result
// describes them; nil if there are none. Of the options, it uses Out, Context and Finder.
func Import(ctx context.Context, from string, o Options) (
	*huggingface.Checkpoint, *trained.Posttrained, error) {
	path := vfs.At(from).Join(pyTorchFile)
	if exists, err := path.Exists(); err != nil || !exists || !trained.IsHub(from) {
		c, err := trained.Import(ctx, from, o.Out, o.Context)
		return c, nil, err
	}
	var err error
	if o.Finder, o.Logger, err = plugin.Defaults(o.Finder, nil); err != nil {
		return nil, nil, err
	}
	if o.Out != "" {
		if err := atomicfile.CheckDir(vfs.At(o.Out)); err != nil {
			return nil, nil, err
		}
	}
	source, err := trained.OpenSource(from, 0, o.Context, o.Logger)
	if err != nil {
		return nil, nil, err
	}
	defer source.Close()
	r := &pyTorch{run: run{Source: source, Options: o, ready: map[string][]safetensors.Tensor{}},
		path: path, clients: map[string]*plugin.Client{}}
	defer func() {
		for _, c := range r.clients {
			c.Close()
		}
	}()
	if err := r.importTo(ctx, o.Out); err != nil {
		return nil, nil, err
	}
	return source.Hub, r.record.Posttrained, nil
}

// pyTorch is the import of a checkpoint with the quantizers of PyTorch.
type pyTorch struct {
	run
	path    vfs.Path
	file    *safetensors.File
	layers  map[string]map[string]pyTorchQuantizer // by layer, then "weight" or "input"
	clients map[string]*plugin.Client
	device  *engine.Device
}

// pyTorchQuantizer describes a quantizer in the file.
type pyTorchQuantizer struct {
	Plugin   string             `json:"plugin"`
	Settings map[string]setting `json:"settings"`
	Program  string             `json:"program"` // hash of the program for evaluation
}

// same reports whether two quantizers have the same plugin and settings.
func (q pyTorchQuantizer) same(o pyTorchQuantizer) bool {
	return q.Plugin == o.Plugin && reflect.DeepEqual(q.Settings, o.Settings)
}

func (q pyTorchQuantizer) params() map[string]any {
	params := map[string]any{}
	for name, s := range q.Settings {
		params[name] = s.value
	}
	return params
}

// setting is a plugin's parameter: a text, a bool, an int64, or, with a point or an exponent, a
// float64.
type setting struct{ value any }

func (s *setting) UnmarshalJSON(text []byte) error {
	if jsontext.Value(text).Kind() == '0' {
		if n, err := strconv.ParseInt(string(text), 10, 64); err == nil {
			s.value = n
			return nil
		}
	}
	return plainjson.UnmarshalPart(text, &s.value)
}

func (r *pyTorch) importTo(ctx context.Context, out string) (err error) {
	if err := r.Hub.Verify(); err != nil {
		return err
	}
	if r.file, err = safetensors.Open(r.path); err != nil {
		return err
	}
	defer r.file.Close()
	if err := r.readLayers(); err != nil {
		return fmt.Errorf("%s: %w", r.path, err)
	}
	if r.device, err = engine.Open(device.CPU, engine.Options{}); err != nil {
		return err
	}
	defer r.device.Close()
	result := &trained.Posttrained{Settings: posttrain.Settings{Method: trained.PyTorch}}
	r.record = &trained.Record{Posttrained: result,
		Record: provenance.Record{Build: r.device.BuildInfo(), Tokenizer: r.Record.Tokenizer}}
	if r.record.Initial, err = originOf(r.Source, nil); err != nil {
		return err
	}
	if err := r.inputs(ctx); err != nil {
		return err
	}
	weights := func(store func([]*Quantized) error) error { return r.weights(ctx, store) }
	if out == "" {
		return weights(func(list []*Quantized) error {
			result.Matrices = append(result.Matrices, list[0].Report)
			return nil
		})
	}
	return atomicfile.WriteDir(vfs.At(out), func(dir vfs.Path) error {
		return r.write(ctx, rundir.Dir{Path: dir}, r.Hub.Params(), r.Hub.Values, weights)
	})
}

func (r *pyTorch) readLayers() error {
	const key, version = "cage_torch", 1
	var content struct {
		Version int                                    `json:"version"`
		Layers  map[string]map[string]pyTorchQuantizer `json:"layers"`
	}
	text, ok := r.file.Metadata()[key]
	if !ok {
		return fmt.Errorf("its metadata has no entry %s: want a file of cage_torch.save", key)
	}
	if err := plainjson.Unmarshal([]byte(text), &content); err != nil {
		return fmt.Errorf("metadata, %s: %w", key, err)
	}
	if content.Version != version {
		return fmt.Errorf("it is of version %d of the format, want %d: import it with the release of "+
			"cage that belongs to the cage-torch that wrote it", content.Version, version)
	}
	r.layers = content.Layers
	return nil
}

// weights quantizes one weight after the other.
func (r *pyTorch) weights(ctx context.Context, store func([]*Quantized) error) error {
	layout, err := huggingface.Layout(r.Hub.Config.Settings)
	if err != nil {
		return err
	}
	found := map[string]bool{}
	for _, p := range r.Hub.Params() {
		parts := slices.DeleteFunc(slices.Clone(layout), func(m huggingface.Mapping) bool {
			return m.Param.Name != p.Name || !p.Quantized
		})
		var with, without []string
		for _, m := range parts {
			found[layerOf(m)] = true
			if _, ok := r.layers[layerOf(m)]["weight"]; ok {
				with = append(with, layerOf(m))
			} else {
				without = append(without, layerOf(m))
			}
		}
		switch {
		case with == nil:
			continue
		case without != nil:
			return fmt.Errorf("%s: layer %s is quantized and %s is not, but both are one weight in cage: "+
				"quantize both in PyTorch, or neither (skip)", r.path, with[0], without[0])
		}
		q, err := r.weight(ctx, p, parts)
		if err == nil {
			err = store([]*Quantized{q})
		}
		if err != nil {
			return err
		}
	}
	for _, layer := range slices.Sorted(maps.Keys(r.layers)) {
		if !found[layer] {
			return fmt.Errorf("%s: the model has no linear layer %s in its blocks: want the file of this "+
				"model", r.path, layer)
		}
	}
	return nil
}

// layerOf returns the name of the linear layer in PyTorch whose weight is a tensor.
func layerOf(m huggingface.Mapping) string { return strings.TrimSuffix(m.Tensor, ".weight") }

// weight quantizes the layers of which a parameter consists, each by itself.
func (r *pyTorch) weight(ctx context.Context, p architecture.Param, parts []huggingface.Mapping) (
	*Quantized, error) {
	x, err := r.Hub.Values(p.Name)
	if err != nil {
		return nil, err
	}
	columns := p.Dims[1]
	all := &Quantized{Value: make([]float32, len(x))}
	for i, m := range parts {
		own := make([]float32, 0, len(m.Rows)*columns)
		for _, row := range m.Rows {
			own = append(own, x[row*columns:][:columns]...)
		}
		part, err := r.layer(ctx, m, own, columns)
		if err != nil {
			return nil, fmt.Errorf("%s: layer %s: %w", r.path, layerOf(m), err)
		}
		groups := 1
		if g := part.Report.Grid.Group; g > 0 {
			groups = (columns + g - 1) / g
		}
		groups *= max(1, part.Report.Grid.PerGroup())
		if len(part.Scale) == 1 && groups == 1 { // one scale for the tensor
			part.Scale = slices.Repeat(part.Scale, len(m.Rows))
		}
		if i == 0 {
			all.Report = part.Report
			if len(part.Scale) == len(m.Rows)*groups {
				all.Scale, all.ScaleShape = make([]float32, p.Dims[0]*groups), []int{p.Dims[0], groups}
			}
		}
		if part.Report.Grid != all.Report.Grid || part.Report.Rotation != all.Report.Rotation ||
			all.Scale != nil && len(part.Scale) != len(m.Rows)*groups {
			return nil, fmt.Errorf("%s: the layers %s and %s have different quantizers, but are one weight "+
				"in cage: want the same", r.path, layerOf(parts[0]), layerOf(m))
		}
		for j, row := range m.Rows {
			copy(all.Value[row*columns:], part.Value[j*columns:][:columns])
			if all.Scale != nil {
				copy(all.Scale[row*groups:], part.Scale[j*groups:][:groups])
			}
		}
	}
	all.Report.Name, all.Report.Shape = p.Name, p.Dims
	all.Report.WeightError = distance(x, all.Value)
	return all, nil
}

// layer quantizes the weight x of a layer with its plugin and the tensors in the file.
func (r *pyTorch) layer(ctx context.Context, m huggingface.Mapping, x []float32, columns int) (
	*Quantized, error) {
	dims := []int{len(m.Rows), columns}
	answer, err := r.ask(ctx, layerOf(m), "weight", sdk.RoleWeight, dims)
	if err != nil {
		return nil, err
	}
	inputs := func(name string) ([]float32, error) {
		t, err := r.file.Tensor(layerOf(m) + ".weight." + name)
		if err != nil {
			return nil, err
		}
		q := answer.ForEvaluation().Program
		if want := q.Inputs[q.Input(name)].Type.Shape; !slices.Equal(t.Shape, want) {
			return nil, fmt.Errorf("tensor %s has shape %v, want %v", t.Name, t.Shape, want)
		}
		return safetensors.Values[float32](t)
	}
	q, err := newQuantizer(r.device, answer, x, inputs)
	if err != nil {
		return nil, err
	}
	defer q.close()
	return quantizeMatrix(ctx, posttrain.Settings{Method: posttrain.RTN}, q,
		architecture.Param{Name: m.Tensor, Dims: dims}, x, nil)
}

// ask starts the plugin of a layer, unless it is running, and returns its programs.
func (r *pyTorch) ask(ctx context.Context, layer, of string, role sdk.Role, dims []int) (
	spec.Quantizer, error) {
	q, none := r.layers[layer][of], spec.Quantizer{}
	if strings.Contains(q.Plugin, "/") {
		return none, fmt.Errorf("plugin %q: a file names plugins without a path, to be found on the "+
			"plugin path", q.Plugin)
	}
	client := r.clients[q.Plugin]
	if client == nil {
		p := &config.Plugin{Table: "quantizer.weights", Name: q.Plugin}
		err := build.FindPlugins(r.Config, []*config.Plugin{p}, r.Search, r.Finder)
		if err == nil {
			client, err = r.Finder.Start(ctx, p.Name, sdk.KindQuantizer, plugin.Options{Logger: r.Logger})
		}
		if err != nil {
			return none, err
		}
		r.clients[q.Plugin] = client
	}
	values, err := client.Resolve(q.params())
	if err != nil {
		return none, err
	}
	used := build.Used{Table: "quantizer." + of, Name: client.Description().Name,
		Version: client.Description().Version, SHA256: client.SHA256(), Values: values.Map()}
	if list := &r.record.Plugins; !slices.ContainsFunc(*list,
		func(u build.Used) bool { return reflect.DeepEqual(u, used) }) {
		*list = append(*list, used)
	}
	answer, err := client.Quantize(ctx,
		sdk.Site{Role: role, Name: layer, Shape: dims, Values: values, Layers: 1})
	if err != nil {
		return none, err
	}
	if hash := answer.ForEvaluation().Program.Hash(); role == sdk.RoleWeight && hash != q.Program {
		return none, fmt.Errorf("the program of plugin %s is not the one used in training (SHA-256 "+
			"%.12s…, was %.12s…): want the plugin that training used", q.Plugin, hash, q.Program)
	}
	return answer, nil
}

// inputs lets the run quantize activations, if it can as PyTorch does; otherwise it adds a warning.
func (r *pyTorch) inputs(ctx context.Context) error {
	layout, err := huggingface.Layout(r.Hub.Config.Settings)
	if err != nil {
		return err
	}
	var with []huggingface.Mapping
	layers := 0
	for _, m := range layout {
		if m.Param.Quantized {
			layers++
			if _, ok := r.layers[layerOf(m)]["input"]; ok {
				with = append(with, m)
			}
		}
	}
	if len(with) == 0 {
		return nil
	}
	first := r.layers[layerOf(with[0])]["input"]
	answer, err := r.ask(ctx, layerOf(with[0]), "input", sdk.RoleActivation,
		[]int{32, with[0].Param.Dims[1]})
	if err != nil {
		return fmt.Errorf("%s: layer %s, input: %w", r.path, layerOf(with[0]), err)
	}
	reason := ""
	switch {
	case len(with) < layers:
		reason = fmt.Sprintf("%d of %d layers have such quantizers", len(with), layers)
	case slices.ContainsFunc(with, func(m huggingface.Mapping) bool {
		return !first.same(r.layers[layerOf(m)]["input"])
	}):
		reason = "the quantizers of layers differ"
	case len(answer.Trained)+len(answer.State) > 0:
		reason = "each layer has parameters or state of its own, which layers with the same input " +
			"share in cage"
	default:
		r.record.Posttrained.Activations = true
		r.Config, err = r.Config.Changed(func(c *config.Config) error {
			c.Quantizer.Activations = &config.Plugin{Table: "quantizer.activations",
				Name: first.Plugin, Params: first.params()}
			return build.FindPlugins(c, c.Quantizer.Plugins(), r.Search, r.Finder)
		})
		return err
	}
	warnings := &r.Hub.Config.Warnings
	*warnings = append(*warnings, "PyTorch quantized the inputs of layers, which this run does not: "+
		reason)
	return nil
}
