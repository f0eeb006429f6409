package client

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/internal/wire"
	"google.golang.org/protobuf/proto"

	pb "github.com/cage-qat/cage/sdk/internal/wire/cage/plugin/v1"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/spec"
)

// This file has the host's side of the conversions: sites and tensors to messages, and
// programs from messages.

func toSite(s sdk.Site) (*pb.Site, error) {
	role, noRole := wire.SiteRoles.Number(string(s.Role), "role")
	product, noProduct := wire.SiteProducts.Number(
		string(cmp.Or(s.Product, sdk.ProductForward)), "product")
	shape, noShape := wire.ToShape(s.Shape)
	values, noValues := wire.ToValues(s.Values.Map())
	if err := cmp.Or(noRole, noProduct, noShape, noValues); err != nil {
		return nil, fmt.Errorf("site %s: %w", s.Name, err)
	}
	out := &pb.Site{Role: role, Product: product, Name: s.Name, Shape: shape, Values: values,
		Layers: uint32(max(0, s.Layers)), Heads: uint32(s.Heads), RowHeads: uint32(s.RowHeads),
		Context: uint32(s.Context)}
	if s.Layer >= 0 {
		out.Layer = new(uint32(s.Layer))
	}
	return out, nil
}

func toTensor(t sdk.Tensor) (*pb.Tensor, error) {
	role, noRole := wire.TensorRoles.Number(string(t.Role), "role")
	shape, noShape := wire.ToShape(t.Shape)
	values, noValues := wire.ToValues(t.Values.Map())
	if err := cmp.Or(noRole, noShape, noValues); err != nil {
		return nil, fmt.Errorf("tensor %s: %w", t.Name, err)
	}
	m := &pb.Tensor{Role: role, Name: t.Name, Shape: shape, Values: values}
	for _, p := range t.Parts {
		m.Parts = append(m.Parts, &pb.Part{Name: p.Name, Rows: uint32(p.Rows)})
	}
	return m, nil
}

func fromQuantizeResponse(
	r *pb.QuantizeResponse, limits program.Limits,
) (out spec.Quantizer, err error) {
	m := r.GetProgram()
	if m == nil {
		return out, errNoAnswer
	}
	out.Homogeneous = m.GetHomogeneous()
	out.SearchEvery = int(m.GetSearchEvery())
	if g := m.GetGrid(); g != nil {
		format, err := wire.NumberFormats.Word(g.GetFormat(), "format")
		if err != nil {
			return out, fmt.Errorf("grid: %w", err)
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

func fromProgramResponse(
	r *pb.ProgramResponse, limits program.Limits,
) (out spec.Optimizer, err error) {
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
	rounded, err := wire.Storages.Word(m.GetRounded(), "rounded: storage")
	if err != nil {
		return out, err
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
func fromStateTensors(
	list []*pb.StateTensor, limits program.Limits,
) (out []spec.Tensor, err error) {
	most, total := limits.WithDefaults().Elements, int64(0)
	for i, s := range list {
		shape, err := wire.FromShape(s.GetShape())
		if err != nil {
			return nil, fmt.Errorf("%d (%.60q): %w", i, s.GetName(), err)
		}
		if total += program.FloatType(shape...).Size(); total > most {
			return nil, fmt.Errorf("they have more than %d elements together", most)
		}
		storage, err := wire.Storages.Word(s.GetStorage(), "storage")
		if err != nil {
			return nil, fmt.Errorf("%d (%.60q): %w", i, s.GetName(), err)
		}
		t := spec.Tensor{Name: s.GetName(), Shape: shape, Storage: sdk.Storage(storage),
			Maximum: s.GetMaximum(), Shared: s.GetShared()}
		constrain := sent{"constrain", s.GetConstrain(), &t.Constrain, false}
		if err := fromPrograms([]sent{constrain}, limits); err != nil {
			return nil, fmt.Errorf("%s: %w", s.GetName(), err)
		}
		out = append(out, t)
	}
	return out, nil
}

// maxDescription bounds the size of a description, in bytes.
const maxDescription = 1 << 20

func fromDescribe(m *pb.DescribeResponse) (out sdk.Description, err error) {
	d := m.GetDescription()
	switch v := m.GetApiVersion(); {
	case v == 0:
		return out, fmt.Errorf("%w: Describe names no API version", ErrAnswer)
	case v != APIVersion:
		return out, fmt.Errorf("%w: the plugin has API version %d, this host %d: "+
			"update cage, or rebuild the plugin with a current SDK", ErrVersion, v, APIVersion)
	case d == nil:
		return out, fmt.Errorf("%w: the description is absent", ErrAnswer)
	case proto.Size(d) > maxDescription:
		return out, fmt.Errorf("%w: the description has more than %d bytes", ErrAnswer, maxDescription)
	}
	for _, c := range d.GetCapabilities() {
		if c != wire.OpaqueCapability && c != wire.SearchCapability {
			return out, fmt.Errorf("%w: the plugin needs %.100q, which this host does not have: "+
				"update cage", ErrVersion, c)
		}
	}
	out = sdk.Description{Name: d.GetName(), Version: d.GetVersion(), Doc: d.GetDoc()}
	for i, p := range d.GetParameters() {
		kind, noKind := wire.ParameterTypes.Word(p.GetType(), "type")
		def, noDefault := wire.FromValue(p.GetDefault())
		if noDefault != nil {
			noDefault = fmt.Errorf("default: %w", noDefault)
		}
		if err := cmp.Or(noKind, noDefault); err != nil {
			return sdk.Description{}, fmt.Errorf("%w: parameter %d (%.60q): %w",
				ErrAnswer, i, p.GetName(), err)
		}
		out.Parameters = append(out.Parameters, sdk.Parameter{Name: p.GetName(), Type: sdk.Type(kind),
			Default: def, Min: p.GetMin(), Max: p.GetMax(), Choices: p.GetChoices(), Doc: p.GetDoc()})
	}
	for i, c := range d.GetClaims() {
		claim := sdk.Claim{Name: sdk.ClaimName(c.GetName())}
		if c.GetValue() != nil {
			claim.Value, err = wire.FromValue(c.GetValue())
		}
		if err == nil {
			claim.When, err = wire.FromValues(c.GetWhen())
		}
		if err != nil {
			return sdk.Description{}, fmt.Errorf("%w: claim %d (%.60q): %w", ErrAnswer, i, c.GetName(), err)
		}
		out.Claims = append(out.Claims, claim)
	}
	if err := out.Check(); err != nil {
		return sdk.Description{}, fmt.Errorf("%w: %w", ErrAnswer, err)
	}
	return out, nil
}
