package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cage-qat/cage/host/model/safetensors"
	"github.com/cage-qat/cage/host/train/inspect"
	"github.com/cage-qat/cage/host/train/plugin"
	"github.com/cage-qat/cage/internal/vfs"
	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/reference"
	"github.com/cage-qat/cage/sdk/sdktest"
	sdkanswer "github.com/cage-qat/cage/sdk/spec"
)

type pluginLook struct {
	shape, role, tensor          string
	sets                         []string
	backward, kernel, evaluation bool
	seed                         uint64
	heads, context               int
}

// newPluginsLook returns a command that starts a plugin and answers with what look makes of it.
func newPluginsLook(p *pluginLook, cmd *cobra.Command, look func(context.Context, *plugin.Client, question) (*answer, error)) *cobra.Command {
	cmd.Args = exactly(1, "the name or path of one plugin")
	flags := cmd.Flags()
	flags.StringVar(&p.shape, "shape", "32x384", "`SHAPE` of the tensor, rows first")
	flags.StringVar(&p.role, "role", string(sdk.RoleWeight), "`ROLE` of the site of a quantizer: weight, activation, gradient, key, value or query")
	flags.IntVar(&p.heads, "heads", 1, "`NUMBER` of heads that the columns of a key, value or query belong to")
	flags.IntVar(&p.context, "context", 0, "`NUMBER` of tokens of a sequence that follow each other in the rows of anything but a weight; 0: all rows")
	flags.StringArrayVar(&p.sets, "set", nil, "give a parameter of the plugin: `KEY=VALUE` (repeatable)")
	flags.BoolVar(&p.evaluation, "evaluation", false, "the program of evaluation, where it is another one than that of training")
	return withAnswer(cmd, func(cmd *cobra.Command, args []string) (*answer, error) {
		q, err := p.question()
		if err != nil {
			return nil, err
		}
		return p.ask(cmd.Context(), cmd, args[0], q, look)
	})
}

type question struct {
	shape    []int
	role     sdk.Role
	x        []float64 // given, or nil
	settings func(sdk.Description) map[string]any
}

func (p *pluginLook) question() (q question, err error) {
	set := pluginTest{sets: p.sets, device: noDevice}
	if _, _, err = set.options(); err != nil {
		return q, err
	}
	q.settings = set.settings
	q.role = sdk.Role(p.role)
	if !slices.Contains([]sdk.Role{sdk.RoleWeight, sdk.RoleActivation, sdk.RoleGradient, sdk.RoleKey, sdk.RoleValue, sdk.RoleQuery}, q.role) {
		return q, usageError{fmt.Errorf("--role %q: use weight, activation, gradient, key, value or query", p.role)}
	}
	if p.tensor != "" {
		if q.shape, q.x, err = readTensor(p.tensor); err != nil {
			return q, fmt.Errorf("--tensor %s: %w", p.tensor, err)
		}
		return q, nil
	}
	size := 1
	for text := range strings.SplitSeq(p.shape, "x") {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || size > maxElements/n {
			return q, usageError{fmt.Errorf("--shape %q: want sizes of axes such as 32x384, with at most %d elements", p.shape, maxElements)}
		}
		q.shape, size = append(q.shape, n), size*n
	}
	return q, nil
}

// maxElements bounds the tensors that the reference implementation computes, which is slow.
const maxElements = 1 << 24

// readTensor reads a tensor of float32 that is given as FILE:NAME.
func readTensor(spec string) (shape []int, x []float64, err error) {
	at := strings.LastIndexByte(spec, ':')
	if at < 0 {
		return nil, nil, usageError{errors.New("want FILE.safetensors:NAME")}
	}
	f, err := safetensors.Open(vfs.At(spec[:at]))
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	t, err := f.Tensor(spec[at+1:])
	if err != nil {
		return nil, nil, err
	}
	values, err := safetensors.Values[float32](t)
	if err == nil && (len(t.Shape) == 0 || len(values) == 0) {
		err = errors.New("it has no rows")
	}
	for _, v := range values {
		x = append(x, float64(v))
	}
	return t.Shape, x, err
}

func (p *pluginLook) ask(ctx context.Context, cmd *cobra.Command, name string, q question, look func(context.Context, *plugin.Client, question) (*answer, error)) (a *answer, err error) {
	finder, opts, err := newFinder(cmd)
	if err != nil {
		return nil, err
	}
	exe, err := finder.Find(ctx, name)
	if err != nil {
		return nil, err
	}
	err = startAsEach(ctx, exe, kinds, opts, func(client *plugin.Client) error {
		one, err := look(ctx, client, q)
		if one != nil {
			a = one
		}
		return err
	})
	return a, err
}

func (p *pluginLook) quantizer(ctx context.Context, client *plugin.Client, q question) (out sdkanswer.Quantizer, err error) {
	if client.Kind() != sdk.KindQuantizer {
		return out, fmt.Errorf("%s is an optimizer: only `cage plugins program` is for it", client.Description().Name)
	}
	values, err := client.Resolve(q.settings(client.Description()))
	if err != nil {
		return out, err
	}
	site := sdk.Site{Role: q.role, Name: siteName(q.role), Layers: 1, Shape: q.shape, Values: values}
	if q.role != sdk.RoleWeight {
		if site.Context = cmp.Or(p.context, q.shape[0]); site.Context < 1 || q.shape[0]%site.Context != 0 {
			return out, usageError{fmt.Errorf("--context %d: want a number that divides the %d rows", p.context, q.shape[0])}
		}
	}
	if slices.Contains([]sdk.Role{sdk.RoleKey, sdk.RoleValue, sdk.RoleQuery}, q.role) {
		if site.Heads = p.heads; site.Heads < 1 || site.RowLen()%site.Heads != 0 {
			return out, usageError{fmt.Errorf("--heads %d: want a number that divides the %d columns", p.heads, site.RowLen())}
		}
	}
	out, err = client.Quantize(ctx, site)
	if err == nil && p.evaluation {
		out = out.ForEvaluation()
	}
	return out, err
}

func siteName(role sdk.Role) string {
	return "layers.0." + map[sdk.Role]string{
		sdk.RoleWeight: "attn.qkv", sdk.RoleActivation: "attn.qkv.input", sdk.RoleGradient: "attn.qkv",
		sdk.RoleKey: "attn.keys", sdk.RoleValue: "attn.values", sdk.RoleQuery: "attn.queries",
	}[role]
}

func newPluginsProgram() *cobra.Command {
	p := &pluginLook{}
	cmd := newPluginsLook(p, &cobra.Command{
		Use:   "program NAME",
		Short: "Show the programs that a plugin writes, and what they cost",
		Long: `Show the programs that a plugin writes for one tensor, and what each costs for an
element: operations, products, the bytes of its inputs and outputs, and how often the
tensor is read. Of a quantizer the last column says what becomes one kernel on a GPU.

  cage plugins program ./my-quantizer --shape 32x384 --set bits=3 --backward`,
	}, func(ctx context.Context, client *plugin.Client, q question) (*answer, error) {
		return p.program(ctx, client, q)
	})
	cmd.Flags().BoolVar(&p.backward, "backward", false, "list the backward pass of a quantizer, too")
	cmd.Flags().BoolVar(&p.kernel, "kernel", false, "show the text of the kernel for a GPU")
	return cmd
}

type programPart struct {
	Name       string  `json:"name"`
	Operations float64 `json:"operations_per_element"`
	Products   float64 `json:"products_per_element"`
	Bytes      float64 `json:"bytes_per_element"`
	Passes     int     `json:"passes"`
	Kernel     string  `json:"kernel,omitempty"`
	Program    string  `json:"program,omitempty"`
	Text       string  `json:"kernel_text,omitempty"`
}

func (p *pluginLook) program(ctx context.Context, client *plugin.Client, q question) (*answer, error) {
	var parts []inspect.Part
	listed := map[string]bool{}
	if client.Kind() == sdk.KindQuantizer {
		answered, err := p.quantizer(ctx, client, q)
		if err != nil {
			return nil, err
		}
		for name, program := range answered.Programs() {
			if name != "evaluate" {
				parts, listed[name] = append(parts, inspect.NewPart(name, program, q.shape)), true
			}
		}
		passes, err := inspect.Passes(answered, q.shape)
		if err != nil {
			return nil, err
		}
		parts, listed["backward"] = append(parts, passes...), p.backward
	} else {
		values, err := client.Resolve(q.settings(client.Description()))
		if err != nil {
			return nil, err
		}
		answered, err := client.Program(ctx, sdk.Tensor{Name: siteName(sdk.RoleWeight), Role: sdk.TensorMatrix, Shape: q.shape, Values: values})
		if err != nil {
			return nil, err
		}
		if !answered.Accepts {
			return nil, fmt.Errorf("%s is not for matrices of shape %v", client.Description().Name, q.shape)
		}
		for name, program := range answered.Programs() {
			parts, listed[name] = append(parts, inspect.NewPart(name, program, q.shape)), true
		}
		for i := range parts { // updates are compiled in another way
			parts[i].Kernel, parts[i].Text = "", nil
		}
	}
	var list []programPart
	rows := [][]string{{"program", "operations", "products", "bytes", "passes", "becomes"}}
	number := func(v float64) string { return strconv.FormatFloat(v, 'g', 3, 64) }
	for _, part := range parts {
		one := programPart{Name: part.Name, Operations: part.Operations, Products: part.Products, Bytes: part.Bytes, Passes: part.Passes, Kernel: part.Kernel}
		if listed[part.Name] {
			one.Program = part.Program.String()
		}
		if p.kernel && part.Text != nil && (part.Name == "forward" || part.Name == "backward" && p.backward) {
			one.Text = part.Text.Text
		}
		list = append(list, one)
		rows = append(rows, []string{part.Name, number(part.Operations), number(part.Products), number(part.Bytes), fmt.Sprint(part.Passes), part.Kernel})
	}
	return &answer{list, func(w io.Writer) {
		for _, part := range list {
			fmt.Fprint(w, part.Program, part.Text)
		}
		fmt.Fprintf(w, "for each of the %d elements:\n", program.FloatType(q.shape...).Size())
		table(w, rows)
	}}, nil
}

func newPluginsRun() *cobra.Command {
	p := &pluginLook{}
	cmd := newPluginsLook(p, &cobra.Command{
		Use:   "run NAME",
		Short: "Quantize a tensor, and show codes, scales and the error",
		Long: `Quantize a tensor in float64, and show codes, scales, values and the error. The tensor is
random, with outliers, or one of float32 in a safetensors file.

  cage plugins run ./my-quantizer --tensor model.safetensors:lm_head.weight --backward`,
	}, func(ctx context.Context, client *plugin.Client, q question) (*answer, error) {
		return p.run(ctx, client, q)
	})
	flags := cmd.Flags()
	flags.StringVar(&p.tensor, "tensor", "", "quantize a tensor of a safetensors file: `FILE:NAME`")
	flags.Uint64Var(&p.seed, "seed", 1, "of the random tensor, and of noise")
	flags.BoolVar(&p.backward, "backward", false, "also the gradients, for a random gradient of Q(x)")
	return cmd
}

type ran struct {
	Shape    []int                       `json:"shape"`
	Error    sdktest.Number              `json:"error"`
	Largest  sdktest.Number              `json:"largest_error"`
	X        []sdktest.Number            `json:"x"`
	Value    []sdktest.Number            `json:"value"`
	Codes    []sdktest.Number            `json:"codes,omitempty"`
	Scale    []sdktest.Number            `json:"scale,omitempty"`
	Mask     []sdktest.Number            `json:"mask,omitempty"`
	Trained  map[string][]sdktest.Number `json:"trained,omitempty"`
	State    map[string][]sdktest.Number `json:"state,omitempty"`
	Next     map[string][]sdktest.Number `json:"next,omitempty"`
	DValue   []sdktest.Number            `json:"d.value,omitempty"`
	Gradient map[string][]sdktest.Number `json:"gradients,omitempty"`
}

// printed are numbers as JSON may have them: NaN and infinities are strings.
func printed(data []float64) (out []sdktest.Number) {
	for _, v := range data {
		out = append(out, sdktest.Number(v))
	}
	return out
}

func (p *pluginLook) run(ctx context.Context, client *plugin.Client, q question) (*answer, error) {
	quantizer, err := p.quantizer(ctx, client, q)
	if err != nil {
		return nil, err
	}
	x := q.x
	if x == nil {
		x = inspect.Random(q.shape, p.seed)
	}
	r, err := inspect.Run(quantizer, reference.Floats(x, q.shape...), p.seed, p.backward)
	if err != nil {
		return nil, err
	}
	value := ran{Shape: q.shape, Error: sdktest.Number(r.Error), Largest: sdktest.Number(r.Largest), X: printed(r.X.Float64s()), Value: printed(r.Value.Float64s()),
		Codes: printed(r.Codes.Float64s()), Scale: printed(r.Scale.Float64s()), Mask: printed(r.Mask.Float64s()), DValue: printed(r.DY.Float64s())}
	named := func(tensors map[string]reference.Tensor) map[string][]sdktest.Number {
		out := map[string][]sdktest.Number{}
		for name, t := range tensors {
			out[name] = printed(t.Float64s())
		}
		return out
	}
	value.Trained, value.State, value.Next, value.Gradient = named(r.Trained), named(r.State), named(r.Next), named(r.Gradients)
	return &answer{value, func(w io.Writer) { writeRun(w, client.Description().Name, r) }}, nil
}

func writeRun(w io.Writer, name string, r inspect.Result) {
	fmt.Fprintf(w, "%s, %v: error %.3g of the norm of x, at most %.3g\n", name, r.X.Type, r.Error, r.Largest)
	rows := [][]string{{"", "type", "from", "to", "different", "zeros"}}
	add := func(what string, t reference.Tensor) {
		if t.Len() == 0 {
			return
		}
		v := slices.Sorted(slices.Values(t.Float64s()))
		zeros := 0
		for _, e := range v {
			if e == 0 {
				zeros++
			}
		}
		kinds := len(slices.CompactFunc(slices.Clone(v), func(a, b float64) bool { return a == b }))
		rows = append(rows, []string{what, t.Type.String(), digits(v[0]), digits(v[len(v)-1]), fmt.Sprint(kinds), fmt.Sprintf("%.3g %%", 100*float64(zeros)/float64(len(v)))})
	}
	add("x", r.X)
	add("value", r.Value)
	add("codes", r.Codes)
	add("scale", r.Scale)
	add("mask", r.Mask)
	all := func(prefix string, tensors map[string]reference.Tensor) {
		for _, name := range slices.Sorted(maps.Keys(tensors)) {
			add(prefix+name, tensors[name])
		}
	}
	all("", r.Trained)
	all("", r.State)
	all("next ", r.Next)
	add("d.value", r.DY)
	all("", r.Gradients)
	table(w, rows)
	length := r.X.Type.Shape[len(r.X.Type.Shape)-1]
	for row := range min(2, r.X.Len()/length) {
		fmt.Fprintf(w, "row %d\n", row)
		var lines [][]string
		line := func(what string, t reference.Tensor) {
			if t.Len() != r.X.Len() {
				return
			}
			cells := []string{"  " + what}
			for _, v := range t.Float64s()[row*length : row*length+min(length, 8)] {
				cells = append(cells, digits(v))
			}
			lines = append(lines, cells)
		}
		line("x", r.X)
		line("value", r.Value)
		line("codes", r.Codes)
		line("mask", r.Mask)
		line("d.value", r.DY)
		line("d.x", r.Gradients["d.x"])
		table(w, lines)
	}
}

func digits(v float64) string { return strconv.FormatFloat(v, 'g', 4, 64) }
