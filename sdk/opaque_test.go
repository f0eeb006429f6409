package sdk_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/client"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/spec"
)

// heavyBall is an opaque optimizer: m ← β·m + g, u = m.
type heavyBall struct{ wrong string }

func (heavyBall) Describe() sdk.Description {
	return sdk.Description{Name: "heavy-ball",
		Parameters: []sdk.Parameter{sdk.Float("beta", 0.5, 0, 1, "decay")}}
}

func (o heavyBall) State(t sdk.Tensor) ([]spec.Tensor, error) {
	switch {
	case o.wrong == "shape":
		return []spec.Tensor{{Name: "m", Shape: []int{0}}}, nil
	case o.wrong == "name":
		return []spec.Tensor{{Name: "m\n"}}, nil
	case o.wrong == "axes":
		return []spec.Tensor{{Name: "m", Shape: slices.Repeat([]int{1}, 100)}}, nil
	case o.wrong == "size":
		return []spec.Tensor{{Name: "m", Shape: []int{1 << 30, 1 << 30}}}, nil
	case o.wrong == "many":
		return make([]spec.Tensor, 100_000), nil
	case o.wrong == "twice":
		return []spec.Tensor{{Name: "m"}, {Name: "m"}}, nil
	case len(t.Shape) > 2:
		return nil, sdk.Refuse("three axes: use at most two")
	}
	return []spec.Tensor{{Name: "m", Shape: t.Shape}, {Name: "count"}}, nil
}

func (o heavyBall) Accepts(t sdk.Tensor) bool { return t.Role != sdk.TensorVector }

func (o heavyBall) Step(in sdk.OpaqueStep, t sdk.Tensor) error {
	switch o.wrong {
	case "error":
		return errors.New("no luck")
	case "panic":
		panic("no luck")
	case "state":
		in.State["m"][0] = 1
	case "gradient":
		in.Gradient[0]++
	}
	in.Next["count"][0] = in.State["count"][0] + 1
	for i, g := range in.Gradient {
		m := float32(t.Float("beta"))*in.State["m"][i] + g
		in.Next["m"][i], in.Direction[i] = m, m
	}
	return nil
}

// attach attaches memory for a 2×3 matrix and a 40×1 matrix to the optimizer.
func attach(t *testing.T, o *client.Optimizer) (client.Layout, *os.File) {
	t.Helper()
	var list []client.Placed
	for i, shape := range [][]int{{2, 3}, {40, 1}} {
		tensor := sdk.Tensor{Name: fmt.Sprint("w", i), Role: sdk.TensorMatrix, Shape: shape,
			Values: sdk.Values{}}
		tensor.Values, _ = heavyBall{}.Describe().Resolve(nil)
		p, err := o.Program(t.Context(), tensor, spec.TensorLimits(shape))
		if err != nil {
			t.Fatal(err)
		}
		if !p.Accepts || !p.Opaque || len(p.State) != 2 || p.State[0].Name != "count" {
			t.Fatalf("the answer is %+v", p)
		}
		list = append(list, client.Placed{Tensor: tensor, State: p.State, RateFactor: 1})
	}
	l := client.Arrange(list)
	f, err := os.Create(filepath.Join(t.TempDir(), "memory"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	if err := f.Truncate(l.Bytes); err != nil {
		t.Fatal(err)
	}
	if err := o.Attach(t.Context(), f.Name(), l); err != nil {
		t.Fatal(err)
	}
	return l, f
}

func opaqueOptimizer(t *testing.T, o sdk.OpaqueOptimizer) *client.Optimizer {
	_, c := connect(t, nil, sdk.Opaque(o))
	return c
}

// TestOpaque checks two steps, the second from the state of the first. Each is repeated, as after a
// crash, with the same result.
func TestOpaque(t *testing.T) {
	o := opaqueOptimizer(t, heavyBall{})
	l, f := attach(t, o)
	w := l.Tensors[0]
	put(t, f, w.Gradient, 1, 2, 3, 4, 5, 6)
	for range 2 {
		if err := o.Step(t.Context(), client.Step{Step: 1, Steps: 9}); err != nil {
			t.Fatal(err)
		}
	}
	put(t, f, w.Gradient, 0, 0, 0, 0, 0, 2)
	for _, w := range l.Tensors {
		for i, st := range w.State {
			n := int(program.FloatType(st.Shape...).Size())
			put(t, f, w.StateAt[i], numbers(t, f, w.NextAt[i], n)...)
		}
	}
	for range 2 {
		if err := o.Step(t.Context(), client.Step{Step: 2, Steps: 9}); err != nil {
			t.Fatal(err)
		}
	}
	if got, want := numbers(t, f, w.Direction, 6), []float32{0.5, 1, 1.5, 2, 2.5, 5}; !slices.Equal(
		got, want) {
		t.Errorf("u = %v, want %v", got, want)
	}
	if got := numbers(t, f, w.NextAt[0], 1); got[0] != 2 {
		t.Errorf("%v updates are counted, want 2", got)
	}
	if got := numbers(t, f, l.Tensors[1].NextAt[0], 1); got[0] != 2 {
		t.Errorf("%v updates are counted for the other tensor, want 2", got)
	}
}

func put(t *testing.T, f *os.File, at int64, values ...float32) {
	t.Helper()
	if _, err := f.WriteAt(littleEndian(values), at); err != nil {
		t.Fatal(err)
	}
}

// TestOpaqueMistakes checks that the error of an author's mistake names the tensor, and that the
// plugin keeps running.
func TestOpaqueMistakes(t *testing.T) {
	for wrong, want := range map[string]string{
		"error":    "no luck",
		"panic":    "panic: no luck (opaque_test.go",
		"state":    "are read-only (opaque_test.go",
		"gradient": "are read-only (opaque_test.go",
	} {
		t.Run(wrong, func(t *testing.T) {
			o := opaqueOptimizer(t, heavyBall{wrong})
			attach(t, o)
			for range 2 {
				err := o.Step(t.Context(), client.Step{Step: 1, Steps: 1})
				if _, ok := errors.AsType[*client.Mistake](err); !ok || !strings.Contains(err.Error(), want) ||
					!strings.HasPrefix(err.Error(), "w") {
					t.Errorf("got %v, want a mistake with %q that names the tensor", err, want)
				}
			}
		})
	}
}

// TestOpaqueAnswers checks invalid lists of state tensors, and tensors that are not accepted.
func TestOpaqueAnswers(t *testing.T) {
	matrix := sdk.Tensor{Name: "w", Role: sdk.TensorMatrix, Shape: []int{2, 3}}
	for wrong, want := range map[string]string{
		"shape": "axis 0 has 0 elements", "twice": "state tensor m is listed twice",
		"name": "the name contains",
		"axes": "100 axes", "size": "elements",
		"many": "100000 state tensors, want at most 1024",
	} {
		if _, err := opaqueOptimizer(t, heavyBall{wrong}).
			Program(t.Context(), matrix, spec.TensorLimits(matrix.Shape)); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want an error with %q", wrong, err, want)
		}
	}
	o := opaqueOptimizer(t, heavyBall{})
	matrix.Shape = []int{2, 3, 4}
	_, err := o.Program(t.Context(), matrix, spec.TensorLimits(matrix.Shape))
	if _, refused := errors.AsType[*sdk.Refusal](err); !refused {
		t.Errorf("got %v, want a refusal", err)
	}
	p, err := o.Program(t.Context(), sdk.Tensor{Name: "b", Role: sdk.TensorVector, Shape: []int{2}},
		spec.TensorLimits(matrix.Shape))
	if err != nil || p.Accepts || p.Opaque {
		t.Errorf("got %+v, %v; want that the tensor is declined", p, err)
	}
}

// TestOpaqueOrder checks a step before memory is attached, and memory that does not fit.
func TestOpaqueOrder(t *testing.T) {
	o := opaqueOptimizer(t, heavyBall{})
	if err := o.Step(t.Context(), client.Step{Step: 1, Steps: 1}); !errors.Is(err, client.ErrVersion) {
		t.Errorf("a step before Attach: %v", err)
	}
	l, f := attach(t, o)
	for want, change := range map[string]func(l *client.Layout){
		"not within": func(l *client.Layout) { l.Tensors[0].X = l.Bytes - 4 },
		"fewer than": func(l *client.Layout) { l.Bytes *= 2 },
		"attached 1 state tensors and 2 for their next values": func(l *client.Layout) {
			l.Tensors[0].StateAt = l.Tensors[0].StateAt[:1]
		},
	} {
		changed := client.Layout{Bytes: l.Bytes, Tensors: slices.Clone(l.Tensors)}
		change(&changed)
		if err := o.Attach(t.Context(), f.Name(), changed); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want an error with %q", err, want)
		}
	}
	if err := o.Step(t.Context(), client.Step{Step: 1, Steps: 1}); err != nil {
		t.Errorf("after memory that was refused, the old one: %v", err)
	}
}

// TestOpaqueNeedsAHost checks the description of an opaque optimizer, and that it has no programs.
func TestOpaqueNeedsAHost(t *testing.T) {
	info, err := opaqueOptimizer(t, heavyBall{}).Describe(t.Context())
	if err != nil || info.Name != "heavy-ball" {
		t.Errorf("got %+v, %v", info, err)
	}
	if _, _, err := sdk.Opaque(heavyBall{}).Update(nil, sdk.UpdateInput{}, sdk.Tensor{}); err == nil {
		t.Error("an opaque optimizer has written a program")
	}
}

func littleEndian(values []float32) (out []byte) {
	for _, v := range values {
		out = binary.LittleEndian.AppendUint32(out, math.Float32bits(v))
	}
	return out
}

func numbers(t *testing.T, f *os.File, at int64, n int) (out []float32) {
	t.Helper()
	data := make([]byte, 4*n)
	if _, err := f.ReadAt(data, at); err != nil {
		t.Fatal(err)
	}
	for i := range n {
		out = append(out, math.Float32frombits(binary.LittleEndian.Uint32(data[4*i:])))
	}
	return out
}
