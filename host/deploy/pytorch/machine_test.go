package pytorch

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"slices"
	"testing"

	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/reference"
)

// machine runs programs as PyTorch functions in a Python process.
type machine struct {
	in       io.WriteCloser
	out      *bufio.Reader
	compiled bool // by torch.compile
}

type machineTensor struct {
	DType string  `json:"dtype,omitempty"`
	Shape []int   `json:"shape"`
	Bits  []int64 `json:"bits"` // bits of floats, or other numbers
}

// startMachine skips the test unless CAGE_TORCH is a Python with PyTorch; make python sets it.
func startMachine(t *testing.T) *machine {
	t.Helper()
	cmd := exec.Command(python(t), "testdata/machine.py")
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
	return &machine{in: in, out: bufio.NewReader(out)}
}

func python(t *testing.T) string {
	t.Helper()
	path := os.Getenv("CAGE_TORCH")
	if path == "" {
		t.Skip("CAGE_TORCH is not set: make python sets it to a Python with PyTorch")
	}
	return path
}

func (m *machine) Name() string { return "torch" }

// Run implements sdktest.Machine.
func (m *machine) Run(
	p *program.Program, inputs map[string]reference.Tensor,
) (map[string]reference.Tensor, error) {
	args := []machineTensor{}
	for _, in := range p.Inputs {
		x := inputs[in.Name]
		arg := machineTensor{DType: in.Type.DType.String(), Shape: in.Type.Shape,
			Bits: slices.Clone(x.Ints)}
		if in.Type.DType == program.Float {
			for _, v := range x.Floats {
				arg.Bits = append(arg.Bits, int64(int32(math.Float32bits(float32(v)))))
			}
		}
		if arg.Shape == nil {
			arg.Shape = []int{}
		}
		args = append(args, arg)
	}
	job, err := json.Marshal(map[string]any{"source": source(p), "inputs": args,
		"compile": m.compiled})
	if err != nil {
		return nil, err
	}
	if _, err := m.in.Write(append(job, '\n')); err != nil {
		return nil, err
	}
	line, err := m.out.ReadBytes('\n')
	if err != nil {
		return nil, err
	}
	var result struct {
		Outputs []machineTensor
		Error   string
	}
	if err := json.Unmarshal(line, &result); err != nil {
		return nil, err
	}
	if result.Error != "" {
		return nil, errors.New(result.Error)
	}
	outputs := map[string]reference.Tensor{}
	for i, o := range p.Outputs {
		y, want := result.Outputs[i], p.TypeOf(o.Value)
		if !slices.Equal(y.Shape, want.Shape) {
			return nil, fmt.Errorf("output %s has shape %v, want %s", o.Name, y.Shape, want)
		}
		out := reference.Tensor{Type: want, Ints: y.Bits}
		if want.DType == program.Float {
			out.Ints = nil
			for _, b := range y.Bits {
				out.Floats = append(out.Floats, float64(math.Float32frombits(uint32(b))))
			}
		}
		outputs[o.Name] = out
	}
	return outputs, nil
}

// source returns a module with the program as Program.f.
func source(p *program.Program) string {
	m := newModule()
	text := "class Program:\n" + (&writer{p, m.helpers}).function("f")
	return m.operations() + "\n\n" + text
}
