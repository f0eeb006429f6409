package sdk

import (
	"errors"
	"fmt"

	"github.com/cage-qat/cage/sdk/internal/wire"
	pb "github.com/cage-qat/cage/sdk/internal/wire/cage/plugin/v1"
	"github.com/cage-qat/cage/sdk/spec"
)

// This file has the plugin's side of the conversions: descriptions and programs to messages, and
// sites and tensors from messages. The host's side is in package client.

func describeResponse(d Description) (*pb.DescribeResponse, error) {
	m := &pb.Description{Name: d.Name, Version: d.Version, Doc: d.Doc}
	for _, p := range d.Parameters {
		kind, ok := wire.ParameterTypes[string(p.Type)]
		if !ok {
			return nil, failure(fmt.Errorf("parameter %s: type %q does not exist", p.Name, p.Type))
		}
		def, err := wire.ToValue(p.Default)
		if err != nil {
			return nil, failure(fmt.Errorf("parameter %s: default: %w", p.Name, err))
		}
		m.Parameters = append(m.Parameters, &pb.Parameter{Name: p.Name, Type: kind, Default: def,
			Min: p.Min, Max: p.Max, Choices: p.Choices, Doc: p.Doc})
	}
	for _, c := range d.Claims {
		claim := &pb.Claim{Name: string(c.Name)}
		var err error
		if c.Value != nil {
			claim.Value, err = wire.ToValue(c.Value)
		}
		if err == nil {
			claim.When, err = wire.ToValues(c.When)
		}
		if err != nil {
			return nil, failure(fmt.Errorf("claim %s: %w", c.Name, err))
		}
		m.Claims = append(m.Claims, claim)
	}
	return &pb.DescribeResponse{ApiVersion: wire.APIVersion, Description: m}, nil
}

func fromSite(m *pb.Site) (Site, error) {
	if m == nil {
		return Site{}, errors.New("the request has no site")
	}
	role, ok := wire.SiteRoles.Word(m.GetRole())
	if !ok {
		return Site{}, fmt.Errorf("site %s: role %d is unknown to this plugin's SDK: rebuild the plugin with a current one", m.GetName(), m.GetRole())
	}
	product, ok := wire.SiteProducts.Word(m.GetProduct())
	if !ok {
		return Site{}, fmt.Errorf("site %s: product %d is unknown to this plugin's SDK: rebuild the plugin with a current one", m.GetName(), m.GetProduct())
	}
	shape, values, err := fromShapeAndValues(m.GetShape(), m.GetValues())
	if err != nil {
		return Site{}, fmt.Errorf("site %s: %w", m.GetName(), err)
	}
	layer := -1
	if m.Layer != nil {
		layer = int(m.GetLayer())
	}
	return Site{Role: Role(role), Product: Product(product), Name: m.GetName(), Layer: layer, Layers: int(m.GetLayers()), Shape: shape,
		Heads: int(m.GetHeads()), RowHeads: int(m.GetRowHeads()), Context: int(m.GetContext()), Values: values}, nil
}

func fromTensor(m *pb.Tensor) (Tensor, error) {
	if m == nil {
		return Tensor{}, errors.New("the request has no tensor")
	}
	role, ok := wire.TensorRoles.Word(m.GetRole())
	if !ok {
		return Tensor{}, fmt.Errorf("tensor %s: role %d is unknown to this plugin's SDK: rebuild the plugin with a current one", m.GetName(), m.GetRole())
	}
	shape, values, err := fromShapeAndValues(m.GetShape(), m.GetValues())
	if err != nil {
		return Tensor{}, fmt.Errorf("tensor %s: %w", m.GetName(), err)
	}
	parts, err := fromParts(m.GetParts(), shape)
	if err != nil {
		return Tensor{}, fmt.Errorf("tensor %s: %w", m.GetName(), err)
	}
	return Tensor{Name: m.GetName(), Role: TensorRole(role), Shape: shape, Parts: parts, Values: values}, nil
}

// fromParts reads the parts of a fused tensor, which must together cover all of its rows.
func fromParts(list []*pb.Part, shape []int) (out []Part, err error) {
	if len(list) == 0 {
		return nil, nil
	}
	rows := uint64(0)
	for _, p := range list {
		out = append(out, Part{Name: p.GetName(), First: int(rows), Rows: int(p.GetRows())})
		if rows += uint64(p.GetRows()); p.GetRows() == 0 || len(shape) == 0 || rows > uint64(shape[0]) {
			return nil, fmt.Errorf("part %s has %d rows in a tensor of shape %v", p.GetName(), p.GetRows(), shape)
		}
	}
	if rows != uint64(shape[0]) {
		return nil, fmt.Errorf("the parts have %d rows in a tensor of shape %v", rows, shape)
	}
	return out, nil
}

func fromShapeAndValues(shape []uint32, values map[string]*pb.Value) ([]int, Values, error) {
	dims, err := wire.FromShape(shape)
	if err != nil {
		return nil, Values{}, err
	}
	m, err := wire.FromValues(values)
	return dims, Values{m}, err
}

func toQuantizerProgram(q spec.Quantizer) (*pb.QuantizerProgram, error) {
	trained, err := toStateTensors(q.Trained)
	if err != nil {
		return nil, fmt.Errorf("trained parameter %w", err)
	}
	state, err := toStateTensors(q.State)
	if err != nil {
		return nil, fmt.Errorf("state %w", err)
	}
	var grid *pb.Grid // nil for the zero Grid; all other grids have been checked
	if g := q.Grid; g != (Grid{}) {
		grid = &pb.Grid{Format: wire.NumberFormats[string(g.Format)], Min: int32(g.Min),
			Max: int32(g.Max), Step: uint32(g.Step), Group: uint32(g.Group)}
	}
	return &pb.QuantizerProgram{
		Grid:        grid,
		Program:     wire.ToProgram(q.Program),
		Homogeneous: q.Homogeneous,
		Init:        wire.ToProgram(q.Init),
		Trained:     trained,
		Unpack:      wire.ToProgram(q.Unpack),
		Evaluate:    wire.ToProgram(q.Evaluate),
		State:       state,
		InitState:   wire.ToProgram(q.InitState),
		Next:        wire.ToProgram(q.Next),
		SearchEvery: uint32(q.SearchEvery),
		Backward:    wire.ToProgram(q.Backward),
	}, nil
}

func toOptimizerProgram(o spec.Optimizer) (*pb.OptimizerProgram, error) {
	state, err := toStateTensors(o.State)
	if err != nil {
		return nil, fmt.Errorf("state %w", err)
	}
	rounded, ok := wire.Storages[string(o.Rounded)]
	if !ok {
		return nil, fmt.Errorf("rounding to %q cannot be sent", o.Rounded)
	}
	return &pb.OptimizerProgram{
		Init:         wire.ToProgram(o.Init),
		Update:       wire.ToProgram(o.Update),
		State:        state,
		Observe:      wire.ToProgram(o.Observe),
		FirstRefresh: wire.ToProgram(o.FirstRefresh),
		Refresh:      wire.ToProgram(o.Refresh),
		Rate:         wire.ToProgram(o.Rate),
		Evaluate:     wire.ToProgram(o.Evaluate),
		Collect:      wire.ToProgram(o.Collect),
		Probe:        wire.ToProgram(o.Probe),
		Due:          toDue(o.Due),
		ProbeDue:     toDue(o.ProbeDue),
		Sampled:      o.Sampled,
		Rounded:      rounded,
	}, nil
}

func toDue(d Due) *pb.Due {
	if d == (Due{}) {
		return nil
	}
	return &pb.Due{First: uint32(d.First), Next: uint32(d.Next), Every: uint32(d.Every)}
}

func toStateTensors(list []spec.Tensor) ([]*pb.StateTensor, error) {
	var out []*pb.StateTensor
	for _, s := range list {
		shape, err := wire.ToShape(s.Shape)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", s.Name, err)
		}
		storage, ok := wire.Storages[string(s.Storage)]
		if !ok {
			return nil, fmt.Errorf("%s: storage %q cannot be sent", s.Name, s.Storage)
		}
		out = append(out, &pb.StateTensor{Name: s.Name, Shape: shape, Storage: storage, Maximum: s.Maximum, Shared: s.Shared, Constrain: wire.ToProgram(s.Constrain)})
	}
	return out, nil
}
