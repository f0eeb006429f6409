package wire

import (
	"cmp"
	"fmt"

	pb "github.com/cage-qat/cage/sdk/internal/wire/cage/plugin/v1"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/spec"
)

// field pairs a program of an answer, which may be absent, with its message.
type field struct {
	name       string
	program    **program.Program
	message    **pb.Program
	factorizes bool
}

func encode(list []field) {
	for _, f := range list {
		*f.message = ToProgram(*f.program)
	}
}

func decode(list []field, limits program.Limits) error {
	for _, f := range list {
		if *f.message == nil {
			continue
		}
		p, err := FromProgram(*f.message)
		if err == nil {
			limits.Linalg = f.factorizes
			err = p.Validate(limits)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", f.name, err)
		}
		*f.program = p
	}
	return nil
}

func quantizerFields(q *spec.Quantizer, m *pb.QuantizerProgram) []field {
	return []field{
		{"quantize", &q.Program, &m.Program, false},
		{"init", &q.Init, &m.Init, false},
		{"unpack", &q.Unpack, &m.Unpack, false},
		{"evaluate", &q.Evaluate, &m.Evaluate, false},
		{"init_state", &q.InitState, &m.InitState, false},
		{"next", &q.Next, &m.Next, false},
		{"backward", &q.Backward, &m.Backward, false},
	}
}

// ToQuantizer encodes a checked answer.
func ToQuantizer(q spec.Quantizer) (m *pb.QuantizerProgram, err error) {
	m = &pb.QuantizerProgram{Homogeneous: q.Homogeneous, SearchEvery: uint32(q.SearchEvery)}
	if m.Trained, err = ToTensors(q.Trained); err != nil {
		return nil, fmt.Errorf("trained parameter %w", err)
	}
	if m.State, err = ToTensors(q.State); err != nil {
		return nil, fmt.Errorf("state %w", err)
	}
	if g := q.Grid; g != (spec.Grid{}) {
		m.Grid = &pb.Grid{Format: NumberFormats[string(g.Format)], Min: int32(g.Min),
			Max: int32(g.Max), Step: uint32(g.Step), Group: uint32(g.Group), Span: uint32(g.Span)}
	}
	encode(quantizerFields(&q, m))
	return m, nil
}

// FromQuantizer decodes an answer and validates its programs. The limit on one value also applies
// to the total size of the trained parameters, and to that of the state.
func FromQuantizer(m *pb.QuantizerProgram, limits program.Limits) (q spec.Quantizer, err error) {
	q.Homogeneous, q.SearchEvery = m.GetHomogeneous(), int(m.GetSearchEvery())
	if g := m.GetGrid(); g != nil {
		format, err := NumberFormats.Word(g.GetFormat(), "format")
		if err != nil {
			return q, fmt.Errorf("grid: %w", err)
		}
		n, err := FromNumbers[int]([]uint32{g.GetStep(), g.GetGroup(), g.GetSpan()})
		if err != nil {
			return q, fmt.Errorf("grid: one number %w", err)
		}
		q.Grid = spec.Grid{Format: spec.NumberFormat(format),
			Min: int(g.GetMin()), Max: int(g.GetMax()), Step: n[0], Group: n[1], Span: n[2]}
	}
	if q.Trained, err = FromTensors(m.GetTrained(), limits); err != nil {
		return q, fmt.Errorf("trained parameters: %w", err)
	}
	if q.State, err = FromTensors(m.GetState(), limits); err != nil {
		return q, fmt.Errorf("state tensors: %w", err)
	}
	return q, decode(quantizerFields(&q, m), limits)
}

func optimizerFields(o *spec.Optimizer, m *pb.OptimizerProgram) []field {
	return []field{
		{"init", &o.Init, &m.Init, false},
		{"update", &o.Update, &m.Update, false},
		{"observe", &o.Observe, &m.Observe, false},
		{"first refresh", &o.FirstRefresh, &m.FirstRefresh, true},
		{"refresh", &o.Refresh, &m.Refresh, true},
		{"rate", &o.Rate, &m.Rate, false},
		{"evaluate", &o.Evaluate, &m.Evaluate, false},
		{"collect", &o.Collect, &m.Collect, false},
		{"probe", &o.Probe, &m.Probe, false},
	}
}

// ToOptimizer encodes a checked answer.
func ToOptimizer(o spec.Optimizer) (m *pb.OptimizerProgram, err error) {
	m = &pb.OptimizerProgram{Due: toDue(o.Due), ProbeDue: toDue(o.ProbeDue), Sampled: o.Sampled}
	if m.State, err = ToTensors(o.State); err != nil {
		return nil, fmt.Errorf("state %w", err)
	}
	if m.Rounded, err = Storages.Number(string(o.Rounded), "rounding to"); err != nil {
		return nil, err
	}
	encode(optimizerFields(&o, m))
	return m, nil
}

// FromOptimizer is like [FromQuantizer]. Only refresh programs may contain factorizations.
func FromOptimizer(m *pb.OptimizerProgram, limits program.Limits) (o spec.Optimizer, err error) {
	o.Accepts, o.Sampled = true, m.GetSampled()
	if o.State, err = FromTensors(m.GetState(), limits); err != nil {
		return o, fmt.Errorf("state tensors: %w", err)
	}
	if o.Due, err = fromDue(m.GetDue()); err != nil {
		return o, fmt.Errorf("due: one number %w", err)
	}
	if o.ProbeDue, err = fromDue(m.GetProbeDue()); err != nil {
		return o, fmt.Errorf("probe_due: one number %w", err)
	}
	rounded, err := Storages.Word(m.GetRounded(), "rounded: storage")
	if err != nil {
		return o, err
	}
	o.Rounded = spec.Storage(rounded)
	return o, decode(optimizerFields(&o, m), limits)
}

func toDue(d spec.Due) *pb.Due {
	if d == (spec.Due{}) {
		return nil
	}
	return &pb.Due{First: uint32(d.First), Next: uint32(d.Next), Every: uint32(d.Every)}
}

func fromDue(m *pb.Due) (spec.Due, error) {
	n, err := FromNumbers[int]([]uint32{m.GetFirst(), m.GetNext(), m.GetEvery()})
	if err != nil {
		return spec.Due{}, err
	}
	return spec.Due{First: n[0], Next: n[1], Every: n[2]}, nil
}

// ToTensors encodes state tensors or trained parameters.
func ToTensors(list []spec.Tensor) (out []*pb.StateTensor, err error) {
	for _, s := range list {
		shape, noShape := ToShape(s.Shape)
		storage, noStorage := Storages.Number(string(s.Storage), "storage")
		if err := cmp.Or(noShape, noStorage); err != nil {
			return nil, fmt.Errorf("%s: %w", s.Name, err)
		}
		out = append(out, &pb.StateTensor{Name: s.Name, Shape: shape, Storage: storage,
			Maximum: s.Maximum, Shared: s.Shared, Constrain: ToProgram(s.Constrain)})
	}
	return out, nil
}

// FromTensors decodes state tensors or trained parameters. The limit on one value also applies to
// their total size.
func FromTensors(list []*pb.StateTensor, limits program.Limits) (out []spec.Tensor, err error) {
	most, total := limits.WithDefaults().Elements, int64(0)
	for i, s := range list {
		shape, noShape := FromShape(s.GetShape())
		storage, noStorage := Storages.Word(s.GetStorage(), "storage")
		if err := cmp.Or(noShape, noStorage); err != nil {
			return nil, fmt.Errorf("%d (%.60q): %w", i, s.GetName(), err)
		}
		if total += program.FloatType(shape...).Size(); total > most {
			return nil, fmt.Errorf("they have more than %d elements in total", most)
		}
		t := spec.Tensor{Name: s.GetName(), Shape: shape, Storage: spec.Storage(storage),
			Maximum: s.GetMaximum(), Shared: s.GetShared()}
		if err := decode([]field{{"constrain", &t.Constrain, &s.Constrain, false}}, limits); err != nil {
			return nil, fmt.Errorf("%s: %w", s.GetName(), err)
		}
		out = append(out, t)
	}
	return out, nil
}
