package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/model/safetensors"
	kit "github.com/cage-qat/cage/host/train/conformance"
	"github.com/cage-qat/cage/host/train/plugin"
	"github.com/cage-qat/cage/internal/atomicfile"
	"github.com/cage-qat/cage/internal/lists"
	"github.com/cage-qat/cage/internal/vfs"
	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/reference"
	"github.com/cage-qat/cage/sdk/sdktest"
	"github.com/cage-qat/cage/sdk/spec"
)

type pluginApply struct {
	tensor, gradient, role, device, out string
	sets                                []string
	seed                                uint32
}

// appliedTensor describes a tensor that is written.
type appliedTensor struct {
	Name string         `json:"name"`
	Type string         `json:"type"`
	Min  sdktest.Number `json:"min"`
	Max  sdktest.Number `json:"max"`
}

func newPluginsApply() *cobra.Command {
	p := pluginApply{}
	cmd := &cobra.Command{
		Use:   "apply NAME FILE",
		Short: "Quantize a tensor of a file with a plugin",
		Long: `Quantize a tensor of a .npy or .safetensors file with a quantizer, as in the first step of
a run of one step, and write all that its programs return: value, codes, scale, mask and
surrogate; trained and kept tensors, which start from this tensor, and their next state
(next.NAME); and the gradients d.x and d.trained.NAME for a gradient with respect to the
value, which is all ones unless it is given. Results of evaluation, where that has another
program, are named evaluated.NAME.

  cage plugins apply ./my-quantizer w.npy --out results
  cage plugins apply quest model.safetensors --tensor lm_head.weight --set bits=3 \
      --device cpu --out results.safetensors`,
		Args: exactly(2, "the name or path of one plugin, and a file"),
	}
	flags := cmd.Flags()
	flags.StringVar(&p.tensor, "tensor", "", "`NAME` of the tensor in a .safetensors file")
	flags.StringVar(&p.gradient, "gradient", "",
		"`FILE` (.npy, or .safetensors with one tensor) of the gradient with respect to the value")
	flags.StringVar(&p.role, "role", string(sdk.RoleWeight),
		"`ROLE` of the tensor: weight, activation, gradient, key, value or query")
	flags.StringVar(&p.device, "device", noDevice,
		"`KIND` of device: "+strings.Join(engine.Kinds(), ", ")+", or none, to compute in float64")
	flags.StringArrayVar(&p.sets, "set", nil,
		"set a parameter of the plugin: `KEY=VALUE` (repeatable)")
	flags.Uint32Var(&p.seed, "seed", 0, "`NUMBER` that random bits depend on")
	flags.StringVar(&p.out, "out", "",
		"write the results to this `FILE`.safetensors, or as .npy files into this directory")
	return withOutput(cmd, func(cmd *cobra.Command, args []string) (a *output, err error) {
		if siteNames[sdk.Role(p.role)] == "" {
			return nil, usagef("--role %q: want weight, activation, gradient, key, value or query", p.role)
		}
		if known := append(engine.Kinds(), noDevice); !slices.Contains(known, p.device) {
			return nil, usagef("--device %q: want one of %s", p.device, strings.Join(known, ", "))
		}
		x, err := readTensor(args[1], p.tensor)
		if err == nil && len(x.Type.Shape) == 0 {
			err = fmt.Errorf("%s: a scalar cannot be quantized", args[1])
		}
		if err != nil {
			return nil, err
		}
		dy := reference.Floats(slices.Repeat([]float64{1}, x.Len()), x.Type.Shape...)
		if p.gradient != "" {
			dy, err = readTensor(p.gradient, "")
			if err == nil && !dy.Type.Equal(x.Type) {
				err = fmt.Errorf("%s: the shape is %v, and that of the tensor %v", p.gradient,
					dy.Type.Shape, x.Type.Shape)
			}
			if err != nil {
				return nil, err
			}
		}
		err = startAsEach(cmd, args[0], []sdk.Kind{sdk.KindQuantizer}, false,
			func(client *plugin.Client) error {
				values, err := pluginValues(client, p.sets)
				if err != nil {
					return err
				}
				site := siteOf(sdk.Role(p.role), x.Type.Shape, values)
				q, err := client.Quantize(cmd.Context(), site)
				if err != nil {
					return err
				}
				results, err := p.apply(q, x, dy)
				if err == nil && p.out != "" {
					err = writeTensors(cmd.Context(), p.out, results)
				}
				a = appliedOutput(results)
				return err
			})
		return a, err
	})
}

// apply runs the programs of a quantizer.
func (p *pluginApply) apply(q spec.Quantizer, x, dy reference.Tensor) (
	results map[string]reference.Tensor, err error) {
	if q.Calibrated() || q.SearchEvery > 0 {
		return nil, errors.New("the quantizer starts from statistics of both operands of a product, " +
			"or searches for its state: want a quantizer that needs one tensor")
	}
	var machine sdktest.Machine = sdktest.Reference{}
	if p.device != noDevice {
		device, err := engine.Open(p.device, engine.Options{})
		if err != nil {
			return nil, err
		}
		defer device.Close()
		d := kit.NewDevice(device)
		defer d.Close()
		machine = d
	}
	reverse, err := q.Reverse()
	if err != nil {
		return nil, err
	}
	key := reference.Uints([]uint32{p.seed, 0}, 2)
	inputs := map[string]reference.Tensor{spec.InputX: x, spec.InputDY: dy,
		spec.InputNoise: key, spec.InputSharedNoise: key,
		spec.InputStep: reference.Float(1), spec.InputSteps: reference.Float(1)}
	results = map[string]reference.Tensor{}
	for _, part := range []struct {
		prefix  string
		program *program.Program
		initial bool // the outputs are inputs of the other programs
	}{{"", q.Init, true}, {"", q.InitState, true}, {"", q.Program, false},
		{"evaluated.", q.Evaluate, false}, {"next.", q.Next, false}, {"", reverse, false}} {
		if part.program == nil {
			continue
		}
		given := map[string]reference.Tensor{}
		for _, in := range part.program.Inputs {
			given[in.Name] = inputs[in.Name]
		}
		out, err := machine.Run(part.program, given)
		if err != nil {
			return nil, err
		}
		for name, v := range out {
			if part.program == q.Next {
				name = strings.TrimPrefix(name, spec.KeptPrefix)
			}
			results[part.prefix+name] = v
			if part.initial {
				inputs[name] = v.Single()
			}
		}
	}
	return results, nil
}

func appliedOutput(results map[string]reference.Tensor) *output {
	var list []appliedTensor
	rows := [][]string{{"tensor", "type", "min", "max"}}
	number := func(v float64) string { return strconv.FormatFloat(v, 'g', 6, 64) }
	for _, name := range slices.Sorted(maps.Keys(results)) {
		t := results[name]
		values := t.Float64s()
		least, most := slices.Min(values), slices.Max(values) // NaN if there is one
		list = append(list, appliedTensor{name, t.Type.String(), sdktest.Number(least),
			sdktest.Number(most)})
		rows = append(rows, []string{name, t.Type.String(), number(least), number(most)})
	}
	return tableOutput(list, rows)
}

// writeTensors writes the results to a safetensors file, or as .npy files into a directory.
func writeTensors(ctx context.Context, out string, results map[string]reference.Tensor) error {
	var list []safetensors.Tensor
	for name, t := range results {
		data, err := stored(name, t)
		if err != nil {
			return err
		}
		list = append(list, data)
	}
	if strings.HasSuffix(out, ".safetensors") {
		to, err := atomicfile.Target(out)
		if err == nil {
			err = safetensors.WriteFile(ctx, to, list, nil)
		}
		return err
	}
	dir := vfs.At(out)
	if err := dir.MkdirAll(); err != nil {
		return err
	}
	kinds := map[safetensors.DType]string{safetensors.F32: "<f4", safetensors.I32: "<i4",
		safetensors.U32: "<u4", safetensors.U8: "|u1"}
	for _, t := range list {
		content, err := t.Bytes()
		if err != nil {
			return err
		}
		header := fmt.Sprintf("{'descr': '%s', 'fortran_order': False, 'shape': (%s), }", kinds[t.DType],
			strings.Join(lists.Map(t.Shape, func(n int) string { return strconv.Itoa(n) + ", " }), ""))
		header += strings.Repeat(" ", 63-(len(header)+10)%64) + "\n"
		head := binary.LittleEndian.AppendUint16([]byte("\x93NUMPY\x01\x00"), uint16(len(header)))
		// A plugin chooses names.
		to := dir.Join(strings.NewReplacer("/", "_", `\`, "_").Replace(t.Name) + ".npy")
		if err := atomicfile.WriteBytes(to, slices.Concat(head, []byte(header), content)); err != nil {
			return err
		}
	}
	return nil
}

// stored returns a tensor in 32 bits, or in 8 for bools.
func stored(name string, t reference.Tensor) (safetensors.Tensor, error) {
	switch t.Type.DType {
	case program.Float:
		return safetensors.New(name, t.Type.Shape,
			lists.Map(t.Floats, func(v float64) float32 { return float32(v) }))
	case program.Int:
		return safetensors.New(name, t.Type.Shape,
			lists.Map(t.Ints, func(v int64) int32 { return int32(v) }))
	case program.Uint:
		return safetensors.New(name, t.Type.Shape,
			lists.Map(t.Ints, func(v int64) uint32 { return uint32(v) }))
	}
	return safetensors.New(name, t.Type.Shape,
		lists.Map(t.Ints, func(v int64) uint8 { return uint8(v) }))
}

// readTensor reads floats: a .npy file, or the named tensor, or the only one, of a .safetensors
// file.
func readTensor(file, name string) (x reference.Tensor, err error) {
	if strings.HasSuffix(file, ".npy") {
		if name != "" {
			return x, usagef("--tensor is for .safetensors files: %s has one tensor", file)
		}
		f, err := vfs.At(file).Open()
		if err != nil {
			return x, err
		}
		defer f.Close()
		if x, err = readNPY(f); err != nil {
			err = fmt.Errorf("%s: %w", file, err)
		}
		return x, err
	}
	f, err := safetensors.Open(vfs.At(file))
	if err != nil {
		return x, err
	}
	defer f.Close()
	infos := f.Tensors()
	if name == "" && len(infos) == 1 {
		name = infos[0].Name
	} else if name == "" {
		return x, usagef("%s has %d tensors: want --tensor with the name of one, or a file with one",
			file, len(infos))
	}
	t, err := f.Tensor(name)
	if err != nil {
		return x, err
	}
	if size := program.FloatType(t.Shape...).Size(); size > maxElements || size == 0 {
		return x, fmt.Errorf("%s: tensor %s has %d elements, want 1 to %d", file, name, size, maxElements)
	}
	values, err := safetensors.Floats(t)
	return reference.Floats(lists.Map(values, func(v float32) float64 { return float64(v) }),
		t.Shape...), err
}

var (
	npyKind  = regexp.MustCompile(`'descr': *'([^']*)'`)
	npyOrder = regexp.MustCompile(`'fortran_order': *True`)
	npyShape = regexp.MustCompile(`'shape': *\(([0-9, ]*)\)`)
)

// readNPY reads an array of float32 or float64 in NumPy's format
// (https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html).
func readNPY(r io.Reader) (x reference.Tensor, err error) {
	start := make([]byte, 12)
	if _, err := io.ReadFull(r, start[:10]); err != nil || string(start[:6]) != "\x93NUMPY" {
		return x, errors.New("is not a .npy file")
	}
	size := uint32(binary.LittleEndian.Uint16(start[8:]))
	if start[6] > 1 { // the length has four bytes
		if _, err := io.ReadFull(r, start[10:]); err != nil {
			return x, err
		}
		size = binary.LittleEndian.Uint32(start[8:])
	}
	header := make([]byte, min(size, 1<<16))
	if _, err := io.ReadFull(r, header); err != nil {
		return x, fmt.Errorf("the header ends early: %w", err)
	}
	kind, dims := npyKind.FindSubmatch(header), npyShape.FindSubmatch(header)
	if kind == nil || dims == nil || npyOrder.Match(header) {
		return x, fmt.Errorf("the header is %.200q: want an array of numbers in C order", header)
	}
	shape, n := []int{}, 1
	comma := func(r rune) bool { return r == ',' || r == ' ' }
	for text := range strings.FieldsFuncSeq(string(dims[1]), comma) {
		d, err := strconv.Atoi(text)
		if err != nil || d < 1 || n > maxElements/d {
			return x, fmt.Errorf("the shape is (%s): want 1 to %d elements", dims[1], maxElements)
		}
		shape, n = append(shape, d), n*d
	}
	width := map[string]int{"<f4": 4, "<f8": 8}[string(kind[1])]
	if width == 0 {
		return x, fmt.Errorf("the type is %s: want float32 (<f4) or float64 (<f8)", kind[1])
	}
	// The header may claim more than the file has: memory grows with what is read.
	data, err := io.ReadAll(io.LimitReader(r, int64(n)*int64(width)))
	if err == nil && len(data) < n*width {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return x, fmt.Errorf("the data end early: %w", err)
	}
	values := lists.Make(n, func(i int) float64 {
		if width == 4 {
			return float64(math.Float32frombits(binary.LittleEndian.Uint32(data[4*i:])))
		}
		return math.Float64frombits(binary.LittleEndian.Uint64(data[8*i:]))
	})
	return reference.Floats(values, shape...), nil
}
