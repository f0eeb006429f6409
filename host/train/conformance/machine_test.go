package conformance_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/cage-qat/cage/host/testing/testrun"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/reference"
	"github.com/cage-qat/cage/sdk/spec"
)

// torch runs programs with the package cage-torch in a Python process.
type torch struct {
	in       io.WriteCloser
	out      *bufio.Reader
	compiled bool // by torch.compile
}

const torchTests = "../../../sdk/python/torch/tests/"

// startTorch skips the test unless CAGE_TORCH is a Python with cage-torch; make python sets it.
func startTorch(t *testing.T) *torch {
	t.Helper()
	cmd := exec.Command(python(t), torchTests+"machine.py")
	cmd.Env = append(os.Environ(), pluginPath(t))
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close()
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
	})
	return &torch{in: in, out: bufio.NewReader(out)}
}

func python(t *testing.T) string {
	t.Helper()
	path := os.Getenv("CAGE_TORCH")
	if path == "" {
		t.Skip("CAGE_TORCH is not set: make python sets it to a Python with cage-torch")
	}
	return path
}

// pluginPath is the variable with which cage-torch finds the plugins of this repository.
func pluginPath(t *testing.T) string {
	return "CAGE_PLUGIN_PATH=" + filepath.Dir(testrun.Executables(t)["absmax"])
}

func (m *torch) Name() string { return "torch" }

// Run implements sdktest.Machine.
func (m *torch) Run(
	p *program.Program, inputs map[string]reference.Tensor,
) (map[string]reference.Tensor, error) {
	outputs := map[string]program.Type{}
	var names []string
	for _, o := range p.Outputs {
		names = append(names, o.Name)
		outputs[o.Name] = p.TypeOf(o.Value)
	}
	return m.job(p, inputs, names, outputs, nil)
}

// gradients returns those of <y, y>/2, where y is an output, by the rules of cage-torch.
func (m *torch) gradients(p *program.Program, inputs map[string]reference.Tensor, output string,
	wrt ...string,
) (map[string]reference.Tensor, error) {
	types := map[string]program.Type{}
	for _, name := range wrt {
		types[name] = p.Inputs[p.Input(name)].Type
	}
	return m.job(p, inputs, wrt, types, map[string]any{"of": output, "wrt": wrt})
}

// quantize returns Q(x) and gradients, by the module Quantizer. Its inputs are those of the program
// and the gradient with respect to Q(x).
func (m *torch) quantize(plugin string, settings map[string]any,
	inputs map[string]reference.Tensor, names []string,
) (map[string]reference.Tensor, error) {
	var args []any
	types := map[string]program.Type{}
	for name, x := range inputs {
		args = append(args, argument(name, x.Type, x))
		types["d."+name] = x.Type
	}
	types[spec.OutputValue] = inputs[spec.InputX].Type
	return m.send(map[string]any{"plugin": plugin, "settings": settings, "inputs": args,
		"outputs": names}, names, types)
}

func describe(t program.Type) map[string]any {
	return map[string]any{"dtype": t.DType.String(), "shape": append([]int{}, t.Shape...)}
}

func argument(name string, t program.Type, x reference.Tensor) map[string]any {
	bits := slices.Clone(x.Ints)
	for _, v := range x.Floats {
		bits = append(bits, int64(math.Float64bits(v)))
	}
	return map[string]any{"name": name, "type": describe(t), "bits": bits}
}

func (m *torch) job(p *program.Program, inputs map[string]reference.Tensor, names []string,
	types map[string]program.Type, job map[string]any,
) (map[string]reference.Tensor, error) {
	if job == nil {
		job = map[string]any{}
	}
	var args, nodes, outputs []any
	for _, in := range p.Inputs {
		args = append(args, argument(in.Name, in.Type, inputs[in.Name]))
	}
	for i := range p.Nodes {
		n := &p.Nodes[i]
		info, _ := n.Op.Info()
		a := n.Attr
		var floats []int64
		for _, v := range a.Floats {
			floats = append(floats, int64(math.Float64bits(v)))
		}
		nodes = append(nodes, map[string]any{"op": info.Name, "type": describe(n.Type),
			"args": append([]program.ID{}, n.Args...), "attr": map[string]any{"axes": a.Axes,
				"start": a.Start, "limit": a.Limit, "stride": a.Stride, "lhs_contract": a.LhsContract,
				"rhs_contract": a.RhsContract, "lhs_batch": a.LhsBatch, "rhs_batch": a.RhsBatch,
				"block": a.Block, "floats": floats, "ints": a.Ints}})
	}
	for _, o := range p.Outputs {
		outputs = append(outputs, []any{o.Name, o.Value})
	}
	job["name"], job["hash"], job["compile"] = p.Name, p.Hash(), m.compiled
	job["inputs"], job["nodes"], job["outputs"] = args, append([]any{}, nodes...), outputs
	results, err := m.send(job, names, types)
	if err != nil {
		return nil, fmt.Errorf("%w\n%s", err, p)
	}
	return results, nil
}

// send has a job done whose results have these names and types.
func (m *torch) send(job map[string]any, names []string, types map[string]program.Type,
) (map[string]reference.Tensor, error) {
	text, err := json.Marshal(job)
	if err != nil {
		return nil, err
	}
	if _, err := m.in.Write(append(text, '\n')); err != nil {
		return nil, err
	}
	line, err := m.out.ReadBytes('\n')
	if err != nil {
		return nil, err
	}
	var result struct {
		Outputs []struct {
			Shape []int
			Bits  []int64
		}
		Error string
	}
	if err := json.Unmarshal(line, &result); err != nil {
		return nil, err
	}
	if result.Error != "" {
		return nil, errors.New(result.Error)
	}
	out := map[string]reference.Tensor{}
	for i, name := range names {
		y, want := result.Outputs[i], types[name]
		if !slices.Equal(y.Shape, want.Shape) {
			return nil, fmt.Errorf("output %s has shape %v, want %s", name, y.Shape, want)
		}
		x := reference.Tensor{Type: want, Ints: y.Bits}
		if want.DType == program.Float {
			x.Ints = nil
			for _, b := range y.Bits {
				x.Floats = append(x.Floats, math.Float64frombits(uint64(b)))
			}
		}
		out[name] = x
	}
	return out, nil
}
