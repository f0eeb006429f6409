package sdk_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/client"
	"github.com/cage-qat/cage/sdk/internal/wire"
	pb "github.com/cage-qat/cage/sdk/internal/wire/cage/plugin/v1"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/spec"
)

// replay is a connection to a plugin that always answers with the same bytes.
type replay []byte

func (r replay) Invoke(_ context.Context, _ string, _, reply any, opts ...grpc.CallOption) error {
	for _, o := range opts {
		if c, ok := o.(grpc.ForceCodecV2CallOption); ok {
			return c.CodecV2.Unmarshal(mem.BufferSlice{mem.SliceBuffer(r)}, reply)
		}
	}
	return errors.New("the call does not scan its answer")
}

func (replay) NewStream(
	context.Context, *grpc.StreamDesc, string, ...grpc.CallOption,
) (grpc.ClientStream, error) {
	return nil, errors.New("the protocol has no streams")
}

// optimizerAnswer returns the SDK's message for an optimizer's programs.
func optimizerAnswer(t testing.TB, o spec.Optimizer) *pb.ProgramResponse {
	t.Helper()
	m, err := wire.ToOptimizer(o)
	if err != nil {
		t.Fatal(err)
	}
	return &pb.ProgramResponse{Answer: &pb.ProgramResponse_Program{Program: m}}
}

func quantizerAnswer(t testing.TB, q spec.Quantizer) *pb.QuantizeResponse {
	t.Helper()
	m, err := wire.ToQuantizer(q)
	if err != nil {
		t.Fatal(err)
	}
	return &pb.QuantizeResponse{Answer: &pb.QuantizeResponse_Program{Program: m}}
}

func encode(t testing.TB, m proto.Message) replay {
	t.Helper()
	data, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func build(t testing.TB, o sdk.Optimizer) spec.Optimizer {
	t.Helper()
	out, err := sdk.BuildOptimizer(o, matrix)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestCapabilitiesTravel(t *testing.T) {
	once := rotated
	once.due = sdk.Due{First: 7}
	declines := rotated
	declines.accepts = func(sdk.Tensor) bool { return false }
	for _, o := range []refresher{rotated, once, declines} {
		_, remote := connect(t, nil, o)
		got, err := remote.Program(t.Context(), matrix, program.Limits{})
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(build(t, o), got, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("the answer changed (-sent +received):\n%s", diff)
		}
	}

	want, err := sdk.BuildQuantizer(steps, weight)
	if err != nil {
		t.Fatal(err)
	}
	remote, _ := connect(t, steps, nil)
	got, err := remote.Quantize(t.Context(), weight, program.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("the answer changed (-sent +received):\n%s", diff)
	}
}

// TestOptimizerAnswersRefused checks answers that the SDK would never send.
func TestOptimizerAnswersRefused(t *testing.T) {
	good := build(t, rotated)
	cases := []struct {
		name   string
		change func(*pb.OptimizerProgram)
		says   string
	}{
		{"no update", func(m *pb.OptimizerProgram) { m.Update = nil }, "the update program is absent"},
		{"an empty observe", func(m *pb.OptimizerProgram) { m.Observe = &pb.Program{} },
			"observe: program"},
		{"a refresh where an update belongs", func(m *pb.OptimizerProgram) { m.Update = m.FirstRefresh },
			"update: program \"o/first_refresh/layers.0.wq\": %3 = eigh_vectors: factorizations are for " +
				"refresh programs only"},
		{"a schedule without programs",
			func(m *pb.OptimizerProgram) {
				m.FirstRefresh, m.Refresh = nil, nil
			}, "the first refresh program is required exactly when one is due"},
		{"programs without a schedule", func(m *pb.OptimizerProgram) { m.Due = nil },
			"the first refresh program is required exactly when one is due"},
		{"a contradictory schedule", func(m *pb.OptimizerProgram) { m.Due.First = 0 },
			"First = 0 means never"},
		{"a schedule that overflows", func(m *pb.OptimizerProgram) { m.Due.Every = 1 << 31 },
			"due: one number is 2147483648"},
		{"a state of no elements", func(m *pb.OptimizerProgram) { m.State[1].Shape = []uint32{2, 0} },
			`state tensors: 1 ("left"): the shape has no elements`},
		{"a state that fills the memory",
			func(m *pb.OptimizerProgram) {
				m.State[1].Shape = []uint32{1 << 15, 1 << 15}
			}, "state tensors: they have more than 1000000 elements in total"},
		{"a state of another shape", func(m *pb.OptimizerProgram) { m.State[1].Shape = []uint32{2, 3} },
			"init: output state.left is float[2,2], want float[2,3]"},
		{"a state that is shared", func(m *pb.OptimizerProgram) { m.State[1].Shared = "all" },
			"state tensor left is shared or constrained"},
		{"a state that is a maximum", func(m *pb.OptimizerProgram) { m.State[1].Maximum = true },
			"state tensor left is a maximum"},
		{"a list out of order",
			func(m *pb.OptimizerProgram) {
				m.State[0], m.State[1] = m.State[1], m.State[0]
			}, "state tensors are not sorted by name"},
	}
	for _, c := range cases {
		answer := optimizerAnswer(t, good)
		c.change(answer.GetProgram())
		_, err := client.NewOptimizer(encode(t, answer)).
			Program(t.Context(), matrix, program.Limits{Elements: 1e6, Linalg: true})
		if !errors.Is(err, client.ErrAnswer) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: got %v, want %q", c.name, err, c.says)
		}
	}
	if _, err := client.NewOptimizer(replay(nil)).
		Program(t.Context(), matrix, program.Limits{}); !errors.Is(err, client.ErrAnswer) {
		t.Errorf("no answer: %v", err)
	}
}

func TestQuantizerAnswersRefused(t *testing.T) {
	good, err := sdk.BuildQuantizer(steps, weight)
	if err != nil {
		t.Fatal(err)
	}
	cases := []struct {
		name   string
		change func(*pb.QuantizerProgram)
		says   string
	}{
		{"no program", func(m *pb.QuantizerProgram) { m.Program = nil }, "the program is absent"},
		{"no init", func(m *pb.QuantizerProgram) { m.Init = nil },
			"the init program is required exactly when there are trained parameters"},
		{"an empty unpack", func(m *pb.QuantizerProgram) { m.Unpack = &pb.Program{} }, "unpack: program"},
		{"init for unpack", func(m *pb.QuantizerProgram) { m.Unpack = m.Init },
			"the unpack program must take codes"},
		{"homogeneous", func(m *pb.QuantizerProgram) { m.Homogeneous = true },
			"cannot hold with the trained parameter offset"},
		{"a parameter of no elements", func(m *pb.QuantizerProgram) { m.Trained[1].Shape = []uint32{0} },
			`trained parameters: 1 ("step"): the shape has no elements`},
		{"parameters that fill the memory",
			func(m *pb.QuantizerProgram) {
				m.Trained[1].Shape = []uint32{1 << 30}
			}, "trained parameters: they have more than 1000000 elements in total"},
		{"a grid without an end", func(m *pb.QuantizerProgram) { m.Grid = &pb.Grid{Format: 1, Min: -8} },
			"in steps of 0"},
		{"a grid of no format", func(m *pb.QuantizerProgram) { m.Grid = &pb.Grid{} },
			"grid: format 0 is unknown to this version"},
		{"another parameter", func(m *pb.QuantizerProgram) { m.Trained[1].Name = "width" },
			"must take x: float[2,8], trained.offset: float, trained.width: float[2,1]"},
	}
	for _, c := range cases {
		answer := quantizerAnswer(t, good)
		c.change(answer.GetProgram())
		_, err := client.NewQuantizer(encode(t, answer)).
			Quantize(t.Context(), weight, program.Limits{Elements: 1e6})
		if !errors.Is(err, client.ErrAnswer) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: got %v, want %q", c.name, err, c.says)
		}
	}
}

// summary returns a text of the parts that must not change when an answer is sent.
func summary(programs func(func(string, *program.Program) bool), rest ...any) string {
	var s strings.Builder
	for name, p := range programs {
		fmt.Fprintln(&s, name, p.Hash())
	}
	return s.String() + fmt.Sprint(rest...)
}

// FuzzOptimizerAnswer checks that any answer is refused, or has the right signatures and does not
// change when sent again.
func FuzzOptimizerAnswer(f *testing.F) {
	once := rotated
	once.due = sdk.Due{First: 7}
	for _, o := range []sdk.Optimizer{momentum, rotated, once} {
		f.Add([]byte(encode(f, optimizerAnswer(f, build(f, o)))))
	}
	f.Add([]byte(encode(f,
		&pb.ProgramResponse{Answer: &pb.ProgramResponse_Declined{Declined: &pb.Declined{}}})))
	limits := program.Limits{Elements: 1 << 10, Total: 1 << 16}
	f.Fuzz(func(t *testing.T, data []byte) {
		out, err := client.NewOptimizer(replay(data)).Program(t.Context(), matrix, limits)
		if err != nil {
			return
		}
		if err := out.Check(matrix.Shape); err != nil {
			t.Fatal(err)
		}
		for name, p := range out.Programs() {
			within := limits
			within.Linalg = name == "first_refresh" || name == "refresh"
			if err := p.Validate(within); err != nil {
				t.Fatal(err)
			}
		}
		if !out.Accepts {
			return
		}
		again, err := client.NewOptimizer(encode(t, optimizerAnswer(t, out))).
			Program(t.Context(), matrix, limits)
		if err != nil {
			t.Fatalf("a valid answer does not travel: %v", err)
		}
		if a, b := summary(out.Programs(), out.State, out.Due), summary(again.Programs(), again.State,
			again.Due); a != b {
			t.Fatalf("the answer changed:\n%s\n%s", a, b)
		}
	})
}

// See FuzzOptimizerAnswer.
func FuzzQuantizerAnswer(f *testing.F) {
	plain := quantizer(func(_ *program.Builder, x program.Value, _ sdk.Site) (sdk.Quantized, error) {
		return sdk.Quantized{Value: x.Round(), Homogeneous: true}, nil
	})
	for _, q := range []sdk.Quantizer{plain, steps, drawn, averages} {
		out, err := sdk.BuildQuantizer(q, weight)
		if err != nil {
			f.Fatal(err)
		}
		f.Add([]byte(encode(f, quantizerAnswer(f, out))))
	}
	limits := program.Limits{Elements: 1 << 10, Total: 1 << 16}
	f.Fuzz(func(t *testing.T, data []byte) {
		out, err := client.NewQuantizer(replay(data)).Quantize(t.Context(), weight, limits)
		if err != nil {
			return
		}
		if err := out.Check(weight.Shape); err != nil {
			t.Fatal(err)
		}
		for _, p := range out.Programs() {
			if err := p.Validate(limits); err != nil {
				t.Fatal(err)
			}
		}
		again, err := client.NewQuantizer(encode(t, quantizerAnswer(t, out))).
			Quantize(t.Context(), weight, limits)
		if err != nil {
			t.Fatalf("a valid answer does not travel: %v", err)
		}
		if a, b := summary(out.Programs(), out.Trained, out.Homogeneous), summary(again.Programs(),
			again.Trained, again.Homogeneous); a != b {
			t.Fatalf("the answer changed:\n%s\n%s", a, b)
		}
	})
}
