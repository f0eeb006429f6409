package protocol

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/hashicorp/go-hclog"
	goplugin "github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/cage-qat/cage/sdk/internal/wire"
	pb "github.com/cage-qat/cage/sdk/internal/wire/cage/plugin/v1"
)

// recordedAnswer is a line of answers.jsonl.
type recordedAnswer struct {
	Plugin  string            `json:"plugin"` // a directory of plugins/ or examples/plugins/
	Method  string            `json:"method"`
	Request json.RawMessage   `json:"request"`          // in the JSON form of protobuf
	Answer  json.RawMessage   `json:"answer,omitempty"` // likewise
	Error   *recordedStatus   `json:"error,omitempty"`
	Hashes  map[string]string `json:"hashes,omitempty"` // of the answer's programs, by field
}

// recordedStatus is the gRPC status of a failed call. Its text is for people; other implementations
// may use another text.
type recordedStatus struct {
	Code string `json:"code"`
	Text string `json:"text"`
}

func integer(v int64) *pb.Value { return &pb.Value{Kind: &pb.Value_Integer{Integer: v}} }
func float(v float64) *pb.Value { return &pb.Value{Kind: &pb.Value_Float{Float: v}} }
func text(v string) *pb.Value   { return &pb.Value{Kind: &pb.Value_String_{String_: v}} }
func toggle(v bool) *pb.Value   { return &pb.Value{Kind: &pb.Value_Boolean{Boolean: v}} }

var (
	weight     = pb.SiteRole_SITE_ROLE_WEIGHT
	activation = pb.SiteRole_SITE_ROLE_ACTIVATION
	vector     = pb.TensorRole_TENSOR_ROLE_VECTOR
)

func absmaxValues(bits int64) map[string]*pb.Value {
	return map[string]*pb.Value{"bits": integer(bits), "grid": text("symmetric"),
		"granularity": text("row"), "group": integer(128), "rounding": text("nearest"),
		"scale_dtype": text("f32")}
}

func lsqValues(levels string) map[string]*pb.Value {
	return map[string]*pb.Value{"bits": integer(4), "variant": text("lsq"), "form": text("paper"),
		"levels": text(levels), "granularity": text("tensor"), "scale_dtype": text("f32"),
		"surrogate": text("straight")}
}

func mxfp4Values(rotation, ties string) map[string]*pb.Value {
	return map[string]*pb.Value{"scale_rule": text("ocp"), "ties": text(ties), "mask": text("auto"),
		"rotation": text(rotation), "rounding": text("nearest"), "signs": text("fixed")}
}

func muonValues() map[string]*pb.Value {
	return map[string]*pb.Value{"variant": text("rms_match"), "momentum": float(0.95),
		"nesterov": toggle(true), "ns_steps": integer(1), "ns_a": float(3.4445),
		"ns_b": float(-4.775), "ns_c": float(2.0315), "eps": float(1e-7), "rms": float(0.2)}
}

// calls returns requests of a host and the plugins that answer them.
func calls() []struct {
	plugin  string
	request proto.Message
} {
	site := func(role pb.SiteRole, values map[string]*pb.Value, shape ...uint32) *pb.QuantizeRequest {
		return &pb.QuantizeRequest{Site: &pb.Site{Role: role, Name: "blocks.0.attn.qkv", Shape: shape,
			Values: values}}
	}
	second := site(weight, absmaxValues(4), 4, 6)
	second.Site.Name, second.Site.Layer, second.Site.Layers = "blocks.1.attn.qkv", proto.Uint32(1), 2
	keys := site(pb.SiteRole_SITE_ROLE_KEY, absmaxValues(4), 6, 8)
	keys.Site.Name, keys.Site.Heads, keys.Site.Context = "layers.0.attn.keys", 2, 3
	smooth := map[string]*pb.Value{"bits": integer(8), "alpha": float(0.5), "granularity": text("row")}
	adamw := map[string]*pb.Value{"beta1": float(0.9), "beta2": float(0.95), "eps": float(1e-8),
		"moments": text("float32")}
	tensor := func(values map[string]*pb.Value) *pb.ProgramRequest {
		return &pb.ProgramRequest{Tensor: &pb.Tensor{Name: "norm.weight", Role: vector,
			Shape: []uint32{8}, Values: values}}
	}
	versions := &pb.DescribeRequest{ApiVersions: []uint32{1}}
	return []struct {
		plugin  string
		request proto.Message
	}{
		{"absmax", versions},
		{"absmax", site(weight, absmaxValues(4), 4, 6)},
		{"absmax", site(activation, absmaxValues(8), 2, 3, 8)},
		{"absmax", second},
		{"absmax", site(weight, absmaxValues(1), 4, 6)},
		{"absmax", keys},
		{"lsq", site(weight, lsqValues("signed"), 4, 6)},
		{"lsq", site(weight, lsqValues("unsigned"), 4, 6)},
		{"mxfp4", site(weight, mxfp4Values("none", "even"), 4, 40)},
		{"mxfp4", site(weight, mxfp4Values("32", "away"), 4, 64)},
		{"mxfp4", site(weight, mxfp4Values("32", "even"), 4, 40)},
		{"smoothquant", site(weight, smooth, 4, 6)},
		{"smoothquant", site(activation, smooth, 2, 6)},
		{"ewgs", site(weight, map[string]*pb.Value{"bits": integer(4), "delta": float(0.01),
			"deviations": float(3)}, 4, 6)},
		{"delayed", site(activation, map[string]*pb.Value{"history": integer(4), "margin": integer(1)}, 2,
			8)},
		{"adamw", versions},
		{"adamw", &pb.ProgramRequest{Tensor: &pb.Tensor{Name: "norm.weight", Role: vector,
			Shape: []uint32{8}, Values: adamw}}},
		{"sam", tensor(map[string]*pb.Value{"rho": float(0.05), "momentum": float(0.9)})},
		{"adamw-bf16", tensor(map[string]*pb.Value{"beta1": float(0.9), "beta2": float(0.95),
			"eps": float(1e-8), "round_weights": toggle(true)})},
		{"muon", &pb.ProgramRequest{Tensor: &pb.Tensor{Name: "blocks.0.attn.qkv",
			Role: pb.TensorRole_TENSOR_ROLE_MATRIX, Shape: []uint32{8, 4},
			Values: muonValues(), Parts: []*pb.Part{{Name: "q", Rows: 4}, {Name: "k", Rows: 2},
				{Name: "v", Rows: 2}}}}},
		{"muon", &pb.ProgramRequest{Tensor: &pb.Tensor{Name: "norm.weight", Role: vector,
			Shape: []uint32{8}, Values: muonValues()}}},
	}
}

// TestAnswers checks the recorded answers. Short mode skips the plugins of examples/plugins, which
// it would have to build.
func TestAnswers(t *testing.T) {
	got, err := os.ReadFile("answers.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	lines := bytes.SplitAfter(got, []byte("\n"))
	var file bytes.Buffer
	dir := t.TempDir()
	for i, c := range calls() {
		if testing.Short() && i < len(lines) {
			if _, err := os.Stat("../../examples/plugins/" + c.plugin); err == nil {
				file.Write(lines[i])
				continue
			}
		}
		line, err := json.Marshal(answer(t, connect(t, executable(t, dir, c.plugin)), c.plugin,
			c.request))
		if err != nil {
			t.Fatal(err)
		}
		file.Write(append(line, '\n'))
	}
	write(t, "answers.jsonl", file.Bytes())
	if *update {
		return
	}
	if !bytes.Equal(got, file.Bytes()) {
		t.Error("answers.jsonl is not what today's plugins answer: go test ./sdk/protocol -update")
	}
}

func answer(
	t *testing.T, conn *grpc.ClientConn, plugin string, request proto.Message,
) recordedAnswer {
	t.Helper()
	var method string
	var response proto.Message
	switch request.(type) {
	case *pb.QuantizeRequest:
		method, response = pb.Quantizer_Quantize_FullMethodName, &pb.QuantizeResponse{}
	case *pb.ProgramRequest:
		method, response = pb.Optimizer_Program_FullMethodName, &pb.ProgramResponse{}
	default:
		method, response = pb.Quantizer_Describe_FullMethodName, &pb.DescribeResponse{}
		if plugin == "adamw" {
			method = pb.Optimizer_Describe_FullMethodName
		}
	}
	out := recordedAnswer{Plugin: plugin, Method: method, Request: inJSON(t, request),
		Hashes: map[string]string{}}
	if err := conn.Invoke(t.Context(), method, request, response); err != nil {
		s := status.Convert(err)
		if s.Code() == codes.Internal {
			t.Errorf("%s: %s: a request must have all parameters of the plugin", plugin, s.Message())
		}
		out.Error = &recordedStatus{s.Code().String(), s.Message()}
		return out
	}
	out.Answer = inJSON(t, response)
	fields := map[string]*pb.Program{}
	switch r := response.(type) {
	case *pb.QuantizeResponse:
		q := r.GetProgram()
		fields = map[string]*pb.Program{"program": q.Program, "evaluate": q.Evaluate, "init": q.Init,
			"unpack": q.Unpack, "init_state": q.InitState, "next": q.Next, "backward": q.Backward}
	case *pb.ProgramResponse:
		if o := r.GetProgram(); o != nil {
			fields = map[string]*pb.Program{"init": o.Init, "update": o.Update}
		}
	}
	for name, m := range fields {
		if m != nil {
			p, err := wire.FromProgram(m)
			if err != nil {
				t.Fatal(err)
			}
			out.Hashes[name] = p.Hash()
		}
	}
	return out
}

// executable returns the path of a plugin of plugins/ or examples/plugins/. It builds the plugin in
// dir, unless it is already there or in CAGE_TEST_PLUGINS.
func executable(t *testing.T, dir, name string) string {
	t.Helper()
	path, source := filepath.Join(os.Getenv("CAGE_TEST_PLUGINS"), name), "../../plugins/"+name
	example := "../../examples/plugins/" + name
	if _, err := os.Stat(example); err == nil {
		source = example
	}
	// Look at files, so that the go command repeats the test if one has changed.
	files, err := filepath.Glob(filepath.Join(source, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range append(files, path) {
		_, _ = os.Stat(file)
	}
	if os.Getenv("CAGE_TEST_PLUGINS") == "" || source == example {
		path = filepath.Join(dir, name)
		if _, err := os.Stat(path); err == nil {
			return path
		}
		if out, err := exec.Command("go", "build", "-o", path, source).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	return path
}

// connect starts a plugin.
func connect(t *testing.T, path string) *grpc.ClientConn {
	t.Helper()
	client := goplugin.NewClient(&goplugin.ClientConfig{
		HandshakeConfig: goplugin.HandshakeConfig{ProtocolVersion: wire.ProtocolVersion,
			MagicCookieKey: wire.CookieKey, MagicCookieValue: wire.CookieValue},
		Plugins:          goplugin.PluginSet{"any": anyPlugin{}},
		Cmd:              exec.Command(path),
		AllowedProtocols: []goplugin.Protocol{goplugin.ProtocolGRPC},
		Logger:           hclog.NewNullLogger(),
	})
	t.Cleanup(client.Kill)
	protocol, err := client.Client()
	if err != nil {
		t.Fatal(err)
	}
	conn, err := protocol.Dispense("any")
	if err != nil {
		t.Fatal(err)
	}
	return conn.(*grpc.ClientConn)
}

// anyPlugin gives the caller the bare connection.
type anyPlugin struct {
	goplugin.NetRPCUnsupportedPlugin
}

func (anyPlugin) GRPCServer(*goplugin.GRPCBroker, *grpc.Server) error {
	return errors.New("this is the host's side")
}

func (anyPlugin) GRPCClient(
	_ context.Context, _ *goplugin.GRPCBroker, conn *grpc.ClientConn,
) (any, error) {
	return conn, nil
}
