package sdk

import (
	"cmp"
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
		kind, err := wire.ParameterTypes.Number(string(p.Type), "type")
		if err != nil {
			return nil, failure(fmt.Errorf("parameter %s: %w", p.Name, err))
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
	role, noRole := wire.SiteRoles.Word(m.GetRole(), "role")
	product, noProduct := wire.SiteProducts.Word(m.GetProduct(), "product")
	shape, noShape := wire.FromShape(m.GetShape())
	values, noValues := wire.FromValues(m.GetValues())
	if err := cmp.Or(noRole, noProduct, noShape, noValues); err != nil {
		return Site{}, fmt.Errorf("site %s: %w", m.GetName(), err)
	}
	layer := -1
	if m.Layer != nil {
		layer = int(m.GetLayer())
	}
	return Site{Role: Role(role), Product: Product(product), Name: m.GetName(), Shape: shape,
		Layer: layer, Layers: int(m.GetLayers()), Heads: int(m.GetHeads()),
		RowHeads: int(m.GetRowHeads()), Context: int(m.GetContext()), Values: Values{values}}, nil
}

func fromTensor(m *pb.Tensor) (Tensor, error) {
	if m == nil {
		return Tensor{}, errors.New("the request has no tensor")
	}
	role, noRole := wire.TensorRoles.Word(m.GetRole(), "role")
	shape, noShape := wire.FromShape(m.GetShape())
	values, noValues := wire.FromValues(m.GetValues())
	err := cmp.Or(noRole, noShape, noValues)
	var parts []Part
	if err == nil {
		parts, err = fromParts(m.GetParts(), shape)
	}
	if err != nil {
		return Tensor{}, fmt.Errorf("tensor %s: %w", m.GetName(), err)
	}
	return Tensor{Name: m.GetName(), Role: TensorRole(role), Shape: shape, Parts: parts,
		Values: Values{values}}, nil
}

// fromParts reads the parts of a fused tensor, which must together cover all of its rows.
func fromParts(list []*pb.Part, shape []int) (out []Part, err error) {
	if len(list) == 0 {
		return nil, nil
	}
	rows := uint64(0)
	for _, p := range list {
		out = append(out, Part{Name: p.GetName(), First: int(rows), Rows: int(p.GetRows())})
		rows += uint64(p.GetRows())
		if p.GetRows() == 0 || len(shape) == 0 || rows > uint64(shape[0]) {
			return nil, fmt.Errorf("part %s has %d rows in a tensor of shape %v",
				p.GetName(), p.GetRows(), shape)
		}
	}
	if rows != uint64(shape[0]) {
		return nil, fmt.Errorf("the parts have %d rows in a tensor of shape %v", rows, shape)
	}
	return out, nil
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
	rounded, err := wire.Storages.Number(string(o.Rounded), "rounding to")
	if err != nil {
		return nil, err
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
		shape, noShape := wire.ToShape(s.Shape)
		storage, noStorage := wire.Storages.Number(string(s.Storage), "storage")
		if err := cmp.Or(noShape, noStorage); err != nil {
			return nil, fmt.Errorf("%s: %w", s.Name, err)
		}
		out = append(out, &pb.StateTensor{Name: s.Name, Shape: shape, Storage: storage,
			Maximum: s.Maximum, Shared: s.Shared, Constrain: wire.ToProgram(s.Constrain)})
	}
	return out, nil
}
