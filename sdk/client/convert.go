package client

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/internal/wire"
	pb "github.com/cage-qat/cage/sdk/internal/wire/cage/plugin/v1"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/spec"
)

// This file has the host's side of the conversions: sites and tensors to messages, and
// programs from messages.

func toSite(s sdk.Site) (*pb.Site, error) {
	role, ok := wire.SiteRoles[string(s.Role)]
	if !ok {
		return nil, fmt.Errorf("site %s: role %q cannot be sent", s.Name, s.Role)
	}
	product, ok := wire.SiteProducts[string(cmp.Or(s.Product, sdk.ProductForward))]
	if !ok {
		return nil, fmt.Errorf("site %s: product %q cannot be sent", s.Name, s.Product)
	}
	shape, values, err := toShapeAndValues(s.Shape, s.Values)
	if err != nil {
		return nil, fmt.Errorf("site %s: %w", s.Name, err)
	}
	out := &pb.Site{Role: role, Product: product, Name: s.Name, Layers: uint32(max(0, s.Layers)), Shape: shape, Values: values,
		Heads: uint32(s.Heads), RowHeads: uint32(s.RowHeads), Context: uint32(s.Context)}
	if s.Layer >= 0 {
		out.Layer = new(uint32(s.Layer))
	}
	return out, nil
}

func toTensor(t sdk.Tensor) (*pb.Tensor, error) {
	role, ok := wire.TensorRoles[string(t.Role)]
	if !ok {
		return nil, fmt.Errorf("tensor %s: role %q cannot be sent", t.Name, t.Role)
	}
	shape, values, err := toShapeAndValues(t.Shape, t.Values)
	if err != nil {
		return nil, fmt.Errorf("tensor %s: %w", t.Name, err)
	}
	m := &pb.Tensor{Role: role, Name: t.Name, Shape: shape, Values: values}
	for _, p := range t.Parts {
		m.Parts = append(m.Parts, &pb.Part{Name: p.Name, Rows: uint32(p.Rows)})
	}
	return m, nil
}

func toShapeAndValues(shape []int, values sdk.Values) ([]uint32, map[string]*pb.Value, error) {
	dims, err := wire.ToShape(shape)
	if err != nil {
		return nil, nil, err
	}
	m, err := wire.ToValues(values.Map())
	return dims, m, err
}

func fromQuantizeResponse(r *pb.QuantizeResponse, limits program.Limits) (out spec.Quantizer, err error) {
	m := r.GetProgram()
	if m == nil {
		return out, errNoAnswer
	}
	out.Homogeneous = m.GetHomogeneous()
	out.SearchEvery = int(m.GetSearchEvery())
	if g := m.GetGrid(); g != nil {
		format, ok := wire.NumberFormats.Word(g.GetFormat())
		if !ok {
			return out, fmt.Errorf("grid: format %d is unknown to this host: update cage", g.GetFormat())
		}
		n, err := wire.FromNumbers[int]([]uint32{g.GetStep(), g.GetGroup()})
		if err != nil {
			return out, fmt.Errorf("grid: one number %w", err)
		}
		out.Grid = spec.Grid{Format: spec.NumberFormat(format),
			Min: int(g.GetMin()), Max: int(g.GetMax()), Step: n[0], Group: n[1]}
	}
	if out.Trained, err = fromStateTensors(m.GetTrained(), limits); err != nil {
		return out, fmt.Errorf("trained parameters: %w", err)
	}
	if out.State, err = fromStateTensors(m.GetState(), limits); err != nil {
		return out, fmt.Errorf("state tensors: %w", err)
	}
	return out, fromPrograms([]sent{
		{"quantize", m.GetProgram(), &out.Program, false},
		{"init", m.GetInit(), &out.Init, false},
		{"unpack", m.GetUnpack(), &out.Unpack, false},
		{"evaluate", m.GetEvaluate(), &out.Evaluate, false},
		{"init_state", m.GetInitState(), &out.InitState, false},
		{"next", m.GetNext(), &out.Next, false},
		{"backward", m.GetBackward(), &out.Backward, false},
	}, limits)
}

func fromProgramResponse(r *pb.ProgramResponse, limits program.Limits) (out spec.Optimizer, err error) {
	if r.GetDeclined() != nil {
		return out, nil
	}
	if m := r.GetOpaque(); m != nil {
		out.Accepts, out.Opaque = true, true
		if out.State, err = fromStateTensors(m.GetState(), limits); err != nil {
			return out, fmt.Errorf("state tensors: %w", err)
		}
		return out, nil
	}
	m := r.GetProgram()
	if m == nil {
		return out, errNoAnswer
	}
	out.Accepts = true
	if out.State, err = fromStateTensors(m.GetState(), limits); err != nil {
		return out, fmt.Errorf("state tensors: %w", err)
	}
	if out.Due, err = fromDue(m.GetDue()); err != nil {
		return out, fmt.Errorf("due: one number %w", err)
	}
	if out.ProbeDue, err = fromDue(m.GetProbeDue()); err != nil {
		return out, fmt.Errorf("probe_due: one number %w", err)
	}
	out.Sampled = m.GetSampled()
	rounded, ok := wire.Storages.Word(m.GetRounded())
	if !ok {
		return out, fmt.Errorf("rounded: storage %d is unknown to this host: update cage", m.GetRounded())
	}
	out.Rounded = spec.Storage(rounded)
	return out, fromPrograms([]sent{
		{"init", m.GetInit(), &out.Init, false},
		{"update", m.GetUpdate(), &out.Update, false},
		{"observe", m.GetObserve(), &out.Observe, false},
		{"first refresh", m.GetFirstRefresh(), &out.FirstRefresh, true},
		{"refresh", m.GetRefresh(), &out.Refresh, true},
		{"rate", m.GetRate(), &out.Rate, false},
		{"evaluate", m.GetEvaluate(), &out.Evaluate, false},
		{"collect", m.GetCollect(), &out.Collect, false},
		{"probe", m.GetProbe(), &out.Probe, false},
	}, limits)
}

func fromDue(m *pb.Due) (sdk.Due, error) {
	n, err := wire.FromNumbers[int]([]uint32{m.GetFirst(), m.GetNext(), m.GetEvery()})
	if err != nil {
		return sdk.Due{}, err
	}
	return sdk.Due{First: n[0], Next: n[1], Every: n[2]}, nil
}

var errNoAnswer = errors.New("there is no answer")

// sent is a program of an answer, possibly absent, and the destination of the decoded program.
type sent struct {
	name       string
	message    *pb.Program
	to         **program.Program
	factorizes bool
}

func fromPrograms(list []sent, limits program.Limits) error {
	for _, s := range list {
		if s.message == nil {
			continue
		}
		p, err := wire.FromProgram(s.message)
		if err == nil {
			limits.Linalg = s.factorizes
			err = p.Validate(limits)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		*s.to = p
	}
	return nil
}

// fromStateTensors decodes a list of state tensors or trained parameters. Their
// total size is limited like one value of a program.
func fromStateTensors(list []*pb.StateTensor, limits program.Limits) (out []spec.Tensor, err error) {
	most, total := limits.WithDefaults().Elements, int64(0)
	for i, s := range list {
		shape, err := wire.FromShape(s.GetShape())
		if err != nil {
			return nil, fmt.Errorf("%d (%.60q): %w", i, s.GetName(), err)
		}
		if total += program.FloatType(shape...).Size(); total > most {
			return nil, fmt.Errorf("they have more than %d elements together", most)
		}
		storage, ok := wire.Storages.Word(s.GetStorage())
		if !ok {
			return nil, fmt.Errorf("%d (%.60q): storage %d is unknown to this host: update cage", i, s.GetName(), s.GetStorage())
		}
		t := spec.Tensor{Name: s.GetName(), Shape: shape, Storage: sdk.Storage(storage), Maximum: s.GetMaximum(), Shared: s.GetShared()}
		if err := fromPrograms([]sent{{"constrain", s.GetConstrain(), &t.Constrain, false}}, limits); err != nil {
			return nil, fmt.Errorf("%s: %w", s.GetName(), err)
		}
		out = append(out, t)
	}
	return out, nil
}

// Info is a plugin's answer to Describe.
type Info struct {
	// Description has passed its Check.
	sdk.Description
	// APIVersion is the negotiated version.
	APIVersion int
}

// Bounds on descriptions, to keep them readable.
const (
	maxVersion    = 100
	maxDoc        = 4096
	maxParameters = 256
	maxChoices    = 256
	maxClaims     = 256
	maxLine       = 1024
)

func fromDescribe(m *pb.DescribeResponse) (Info, error) {
	switch v := m.GetApiVersion(); {
	case v == 0:
		return Info{}, fmt.Errorf("%w: Describe names no API version", ErrAnswer)
	case v > APIVersion:
		return Info{}, fmt.Errorf("%w: the plugin speaks API version %d, this host %d: update cage", ErrVersion, v, APIVersion)
	case v < APIVersion:
		return Info{}, fmt.Errorf("%w: the plugin speaks API version %d, this host %d: rebuild the plugin with a current SDK", ErrVersion, v, APIVersion)
	}
	for _, c := range m.GetDescription().GetCapabilities() {
		if c != wire.OpaqueCapability && c != wire.SearchCapability {
			return Info{}, fmt.Errorf("%w: the plugin needs %.100q, which this host does not have: update cage", ErrVersion, c)
		}
	}
	d, err := fromDescription(m.GetDescription())
	if err == nil {
		err = d.Check()
	}
	if err != nil {
		return Info{}, fmt.Errorf("%w: %w", ErrAnswer, err)
	}
	return Info{Description: d, APIVersion: int(m.GetApiVersion())}, nil
}

func fromDescription(m *pb.Description) (sdk.Description, error) {
	if m == nil {
		return sdk.Description{}, errors.New("the description is absent")
	}
	d := sdk.Description{Name: m.GetName(), Version: m.GetVersion(), Doc: m.GetDoc()}
	if err := errors.Join(atMost("version", len(d.Version), maxVersion), atMost("doc", len(d.Doc), maxDoc),
		atMost("list of parameters", len(m.GetParameters()), maxParameters),
		atMost("list of claims", len(m.GetClaims()), maxClaims)); err != nil {
		return d, err
	}
	for i, p := range m.GetParameters() {
		parameter, err := fromParameter(p)
		if err != nil {
			return d, fmt.Errorf("parameter %d (%.60q): %w", i, p.GetName(), err)
		}
		d.Parameters = append(d.Parameters, parameter)
	}
	for i, c := range m.GetClaims() {
		claim := sdk.Claim{Name: sdk.ClaimName(c.GetName())}
		var err error
		if c.GetValue() != nil {
			claim.Value, err = wire.FromValue(c.GetValue())
		}
		if err == nil {
			claim.When, err = wire.FromValues(c.GetWhen())
		}
		if err != nil {
			return d, fmt.Errorf("claim %d (%.60q): %w", i, c.GetName(), err)
		}
		d.Claims = append(d.Claims, claim)
	}
	return d, nil
}

func fromParameter(m *pb.Parameter) (sdk.Parameter, error) {
	p := sdk.Parameter{Name: m.GetName(), Min: m.GetMin(), Max: m.GetMax(), Choices: m.GetChoices(), Doc: m.GetDoc()}
	word, ok := wire.ParameterTypes.Word(m.GetType())
	if !ok {
		return p, fmt.Errorf("type %d does not exist", m.GetType())
	}
	p.Type = sdk.Type(word)
	if err := errors.Join(atMost("doc", len(p.Doc), maxLine), atMost("list of choices", len(p.Choices), maxChoices)); err != nil {
		return p, err
	}
	for _, c := range p.Choices {
		if err := atMost("choice", len(c), maxLine); err != nil {
			return p, err
		}
	}
	def, err := wire.FromValue(m.GetDefault())
	if err != nil {
		return p, fmt.Errorf("default: %w", err)
	}
	p.Default = def
	return p, nil
}

func atMost(what string, length, most int) error {
	if length > most {
		return fmt.Errorf("the %s is longer than %d", what, most)
	}
	return nil
}
