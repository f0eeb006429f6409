package sdk_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log"
	"log/slog"
	"net"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	goplugin "github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/client"
	pb "github.com/cage-qat/cage/sdk/internal/wire/cage/plugin/v1"
	"github.com/cage-qat/cage/sdk/program"
)

// connect connects the plugin's side with the host's side in one process.
func connect(
	t *testing.T, q sdk.Quantizer, o sdk.Optimizer,
) (*client.Quantizer, *client.Optimizer) {
	t.Helper()
	conn := dial(t, q, o)
	return client.NewQuantizer(conn), client.NewOptimizer(conn)
}

// dial returns a connection to the plugin's side.
func dial(t *testing.T, q sdk.Quantizer, o sdk.Optimizer) *grpc.ClientConn {
	t.Helper()
	listener := bufconn.Listen(1 << 20)
	server := grpc.NewServer()
	for _, p := range sdk.Servers(q, o) {
		if err := p.(goplugin.GRPCPlugin).GRPCServer(nil, server); err != nil {
			t.Fatal(err)
		}
	}
	go func() { _ = server.Serve(listener) }()
	conn, err := grpc.NewClient("passthrough:plugin",
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			return listener.DialContext(ctx)
		}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = conn.Close()
		server.Stop()
	})
	return conn
}

// described is a quantizer with the description d.
type described struct {
	quantizer
	d sdk.Description
}

func (d described) Describe() sdk.Description { return d.d }

func TestDescriptionTravels(t *testing.T) {
	q, o := connect(t, described{d: full}, nil)
	info, err := q.Describe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(full, info, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("the description changed (-sent +received):\n%s", diff)
	}
	if _, err := o.Describe(t.Context()); status.Code(err) != codes.Unimplemented {
		t.Errorf("a quantizer is an optimizer: %v", err)
	}
}

func TestInvalidDescriptions(t *testing.T) {
	long := full
	long.Doc = strings.Repeat("x", 1<<20)
	for _, c := range []struct {
		d    sdk.Description
		kind error
		says string
	}{
		{sdk.Description{Name: "Q"}, client.ErrAnswer, "use lower-case letters"},
		{long, client.ErrAnswer, "the description has more than 1048576 bytes"},
		{sdk.Description{Name: "q", Parameters: []sdk.Parameter{{Name: "p", Type: "complex"}}}, nil,
			`type "complex" cannot be sent`},
		{sdk.Description{Name: "q", Parameters: []sdk.Parameter{{Name: "p", Type: sdk.TypeInt}}}, nil,
			"default: <nil> cannot be sent"},
	} {
		q, _ := connect(t, described{d: c.d}, nil)
		_, err := q.Describe(t.Context())
		if err == nil || !strings.Contains(err.Error(), c.says) || c.kind != nil &&
			!errors.Is(err, c.kind) {
			t.Errorf("got %v, want %q", err, c.says)
		}
	}
}

// TestQuantizerTravels checks that request and answer arrive unchanged.
func TestQuantizerTravels(t *testing.T) {
	var asked sdk.Site
	q := quantizer(func(_ *program.Builder, x program.Value, site sdk.Site) (sdk.Quantized, error) {
		asked = site
		return sdk.Quantized{Value: x.Hadamard(8).Round(), Codes: x, Scale: x,
			Grid: sdk.Integers(-7, 8, 32), Homogeneous: true}, nil
	})
	site := weight
	site.Role, site.Product = sdk.RoleKey, sdk.ProductWeightGradient
	site.Heads, site.RowHeads, site.Context = 2, 3, 5
	site.Layer, site.Layers = 3, 4
	site.Values = sdk.NewValues(map[string]any{"bits": 4, "trust": 0.5, "rotate": true,
		"form": "paper"})
	want, err := sdk.BuildQuantizer(q, site)
	if err != nil {
		t.Fatal(err)
	}
	remote, _ := connect(t, q, nil)
	got, err := remote.Quantize(t.Context(), site, program.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("the answer changed (-sent +received):\n%s", diff)
	}
	if asked.Name != site.Name || asked.Role != site.Role || asked.Product != site.Product ||
		asked.Heads != 2 || asked.RowHeads != 3 || asked.Context != 5 || asked.Layer != 3 ||
		asked.Layers != 4 || !cmp.Equal(asked.Shape, site.Shape) || !cmp.Equal(asked.Map(), site.Map()) {
		t.Errorf("asked for %+v, want %+v", asked, site)
	}
	if _, err := remote.Quantize(t.Context(), site, program.Limits{Elements: 8}); !errors.Is(err,
		client.ErrAnswer) {
		t.Errorf("over the limits: %v", err)
	}
}

func TestOptimizerTravels(t *testing.T) {
	want, err := sdk.BuildOptimizer(momentum, matrix)
	if err != nil {
		t.Fatal(err)
	}
	_, remote := connect(t, nil, momentum)
	got, err := remote.Program(t.Context(), matrix, program.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("the answer changed (-sent +received):\n%s", diff)
	}
	if _, err := remote.Program(t.Context(), matrix, program.Limits{Elements: 8}); !errors.Is(err,
		client.ErrAnswer) {
		t.Errorf("over the limits: %v", err)
	}
}

// TestLogging checks that the host can read the output of log/slog and package log.
func TestLogging(t *testing.T) {
	before, flags := slog.Default(), log.Flags()
	defer func() {
		slog.SetDefault(before)
		log.SetOutput(os.Stderr)
		log.SetFlags(flags)
	}()
	t.Setenv("CAGE_PLUGIN_LOG", "debug")
	var out bytes.Buffer
	sdk.NewLogger(&out)
	slog.Log(context.Background(), slog.LevelDebug-4, "below the level")
	slog.With("a", 1).WithGroup("g").With("b", 2).Error("bad", "c", 3, slog.Group("h", "d", 4),
		slog.Group("", "e", 5), slog.Attr{})
	slog.Default().WithGroup("").Debug("detail")
	slog.Warn("odd", "error", errors.New("why"))
	log.Print("printed")

	want := []map[string]any{
		{"@level": "error", "@message": "bad", "a": 1.0, "g": map[string]any{
			"b": 2.0, "c": 3.0, "h": map[string]any{"d": 4.0}, "e": 5.0}},
		{"@level": "debug", "@message": "detail"},
		{"@level": "warn", "@message": "odd", "error": "why"},
		{"@level": "info", "@message": "printed"},
	}
	var got []map[string]any
	for line := range strings.Lines(out.String()) {
		var entry map[string]any
		if err := json.Unmarshal([]byte(line), &entry); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		delete(entry, "@timestamp")
		got = append(got, entry)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestStartedByHand(t *testing.T) {
	both := map[sdk.Kind]sdk.Description{sdk.KindQuantizer: full, sdk.KindOptimizer: {Name: "sgd"}}
	for _, c := range []struct {
		err error
		say string
	}{
		{nil, "quest is a plugin of cage: the quantizer quest-2."},
		{nil, "the optimizer sgd."},
		{nil, "cage plugins show /p/quest\n"},
		{errors.New("no name"), "the plugin is invalid: no name"},
	} {
		var out strings.Builder
		if sdk.ByHand(&out, "/p/quest", both, c.err); !strings.Contains(out.String(), c.say) {
			t.Errorf("said\n%s\nwant %s", &out, c.say)
		}
	}
}

// asked is an optimizer that stores the tensor of the request.
type asked struct {
	optimizer
	tensor *sdk.Tensor
}

func (a asked) Init(b *program.Builder, x program.Value, t sdk.Tensor) (sdk.State, error) {
	*a.tensor = t
	return a.optimizer.Init(b, x, t)
}

func TestPartsTravel(t *testing.T) {
	fused := matrix
	fused.Parts = []sdk.Part{{Name: "q", Rows: 1}, {Name: "k", First: 1, Rows: 1}}
	for _, sent := range []sdk.Tensor{matrix, fused} {
		var got sdk.Tensor
		_, o := connect(t, nil, asked{momentum, &got})
		if _, err := o.Program(t.Context(), sent, program.Limits{}); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(sent.Parts, got.Parts); diff != "" {
			t.Errorf("the parts changed (-sent +received):\n%s", diff)
		}
	}
}

// TestUnknownRequests checks that requests of another version are refused.
func TestUnknownRequests(t *testing.T) {
	conn := dial(t, quantizer(nil), momentum)
	q, o := pb.NewQuantizerClient(conn), pb.NewOptimizerClient(conn)
	for says, site := range map[string]*pb.Site{
		"site : role 0":              nil,
		"site s: role 9 is unknown":  {Name: "s", Role: 9},
		"site s: product 9 is unkno": {Name: "s", Role: 1, Product: 9},
		"an axis of the shape is 4294967295": {Role: pb.SiteRole_SITE_ROLE_WEIGHT,
			Shape: []uint32{1<<32 - 1}},
		"parameter p: the value is a": {Role: pb.SiteRole_SITE_ROLE_WEIGHT,
			Values: map[string]*pb.Value{"p": {}}},
	} {
		if _, err := q.Quantize(t.Context(), &pb.QuantizeRequest{Site: site}); status.Code(
			err) != codes.InvalidArgument || !strings.Contains(err.Error(), says) {
			t.Errorf("got %v, want %q", err, says)
		}
	}
	for says, tensor := range map[string]*pb.Tensor{
		"tensor : role 0":             nil,
		"tensor t: role 9 is unknown": {Name: "t", Role: 9},
		"no elements on axis 1":       {Role: pb.TensorRole_TENSOR_ROLE_HEAD, Shape: []uint32{1, 0}},
		"the parts have 3 rows": {Role: 1, Shape: []uint32{4, 2},
			Parts: []*pb.Part{{Name: "q", Rows: 1}, {Name: "k", Rows: 2}}},
		"part k has 4 rows": {Role: 1, Shape: []uint32{4, 2},
			Parts: []*pb.Part{{Name: "q", Rows: 1}, {Name: "k", Rows: 4}}},
		"part v has 0 rows": {Role: 1, Shape: []uint32{4, 2},
			Parts: []*pb.Part{{Name: "q", Rows: 4}, {Name: "v"}}},
		"part q has 1 rows": {Role: 1, Parts: []*pb.Part{{Name: "q", Rows: 1}}},
	} {
		if _, err := o.Program(t.Context(), &pb.ProgramRequest{Tensor: tensor}); status.Code(
			err) != codes.InvalidArgument || !strings.Contains(err.Error(), says) {
			t.Errorf("got %v, want %q", err, says)
		}
	}
}
