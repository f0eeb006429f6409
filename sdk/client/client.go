// Package client is the host's end of the plugin protocol: the configuration with
// which go-plugin connects to a plugin, and clients with the types of package sdk.
//
// It is for hosts, not for authors of plugins. It does not find, start or stop processes, and sets
// no policy: the caller gives the deadline of each call and the limits of each program.
package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	goplugin "github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"

	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/internal/wire"
	pb "github.com/cage-qat/cage/sdk/internal/wire/cage/plugin/v1"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/spec"
)

// Quantizer is a quantizer in another process. Its methods may be called concurrently.
type Quantizer struct{ rpc pb.QuantizerClient }

// Describe requests the plugin's description and checks it. An error is a [*Mistake], wraps
// [ErrAnswer] or [ErrVersion], or is an error of the call itself, as a gRPC status.
func (q *Quantizer) Describe(ctx context.Context) (sdk.Description, error) {
	return describe(ctx, q.rpc.Describe)
}

// Quantize requests the programs of a site and checks them: they are decoded strictly, must be
// valid within the limits, and must have the signatures of a quantizer for that shape. The limits
// hold for each program; the limit on one value also applies to the total size of the trained
// parameters. Errors are those of Describe, or an [*sdk.Refusal].
func (q *Quantizer) Quantize(
	ctx context.Context, site sdk.Site, limits program.Limits,
) (spec.Quantizer, error) {
	m, err := toSite(site)
	if err != nil {
		return spec.Quantizer{}, err
	}
	request := &pb.QuantizeRequest{Site: m}
	out, err := ask(ctx, q.rpc.Quantize, request, fromQuantizeResponse, site.Shape, limits)
	forward := cmp.Or(site.Product, sdk.ProductForward) == sdk.ProductForward
	if err == nil && out.SearchEvery > 0 && (site.Role != sdk.RoleWeight || !forward) {
		return spec.Quantizer{}, fmt.Errorf("%w: got a search for a site with role %s in "+
			"product %s, want a weight in the forward product",
			ErrAnswer, site.Role, site.Product)
	}
	return out, err
}

// Optimizer is an optimizer in another process. Its methods may be called concurrently.
type Optimizer struct{ rpc pb.OptimizerClient }

// Describe requests the plugin's description; see [Quantizer.Describe].
func (o *Optimizer) Describe(ctx context.Context) (sdk.Description, error) {
	return describe(ctx, o.rpc.Describe)
}

// Program requests the programs of a parameter tensor and checks them as [Quantizer.Quantize] does;
// the limit on one value also applies to the total size of the state. Only refresh programs may
// contain factorizations, whatever limits.Linalg is. It is not an error if the optimizer declines
// the tensor.
func (o *Optimizer) Program(
	ctx context.Context, tensor sdk.Tensor, limits program.Limits,
) (spec.Optimizer, error) {
	m, err := toTensor(tensor)
	if err != nil {
		return spec.Optimizer{}, err
	}
	request := &pb.ProgramRequest{Tensor: m}
	return ask(ctx, o.rpc.Program, request, fromProgramResponse, tensor.Shape, limits)
}

type method[Q, R any] func(context.Context, Q, ...grpc.CallOption) (R, error)

func ask[Q, R any, P interface{ Check(shape []int) error }](
	ctx context.Context, f method[Q, R], request Q,
	read func(R, program.Limits) (P, error), shape []int, limits program.Limits,
) (programs P, err error) {
	response, err := call(ctx, f, request)
	if err != nil {
		return programs, err
	}
	out, err := read(response, limits)
	if err == nil {
		err = out.Check(shape)
	}
	if err != nil {
		return programs, fmt.Errorf("%w: %w", ErrAnswer, err)
	}
	return out, nil
}

func call[Q, R any](ctx context.Context, f method[Q, R], request Q) (R, error) {
	codec := wire.NewCodec()
	response, err := f(ctx, request, grpc.MaxCallRecvMsgSize(MaxMessage),
		grpc.MaxCallSendMsgSize(MaxMessage), grpc.ForceCodecV2(codec))
	if codec.Err != nil {
		return response, fmt.Errorf("%w: %w", ErrAnswer, codec.Err)
	}
	switch reason, text, ok := wire.FromStatus(err); {
	case !ok: // of the call itself
		return response, err
	case reason == wire.Refused:
		return response, &sdk.Refusal{Err: errors.New(text)}
	case reason == wire.Unreadable:
		return response, fmt.Errorf("%w: the plugin cannot read the request: %s", ErrVersion, text)
	default:
		return response, &Mistake{text}
	}
}

func describe(
	ctx context.Context, f method[*pb.DescribeRequest, *pb.DescribeResponse],
) (sdk.Description, error) {
	response, err := call(ctx, f, &pb.DescribeRequest{ApiVersions: []uint32{APIVersion}})
	if err != nil {
		return sdk.Description{}, err
	}
	return fromDescribe(response)
}

// Versions that this host supports, and the size limit of messages.
const (
	// ProtocolVersion is exchanged in the handshake: a host and a plugin of different
	// versions cannot read each other's messages.
	ProtocolVersion = wire.ProtocolVersion
	// APIVersion is negotiated by Describe: it counts changes in the meaning of
	// messages, such as new operations.
	APIVersion = wire.APIVersion
	// MaxMessage is the size of the largest message, in bytes.
	MaxMessage = wire.MaxMessage
)

// Handshake returns go-plugin's handshake, whose cookie tells a plugin that a host started it.
func Handshake() goplugin.HandshakeConfig {
	return goplugin.HandshakeConfig{MagicCookieKey: wire.CookieKey, MagicCookieValue: wire.CookieValue}
}

// Environment returns the environment variables that a host adds to a plugin's environment, besides
// those of go-plugin. The host must hold a pipe to the plugin's standard input open, or the plugin
// exits. logLevel is trace, debug, info, warn or error.
func Environment(logLevel string) []string {
	return []string{wire.ParentPipeKey + "=" + wire.ParentPipeStdin, wire.LogKey + "=" + logLevel}
}

// Plugins returns go-plugin's plugin set for each protocol version: a [*Quantizer] as
// "quantizer" and an [*Optimizer] as "optimizer".
func Plugins() map[int]goplugin.PluginSet {
	quantizer := func(conn grpc.ClientConnInterface) any { return NewQuantizer(conn) }
	optimizer := func(conn grpc.ClientConnInterface) any { return NewOptimizer(conn) }
	return map[int]goplugin.PluginSet{ProtocolVersion: {
		string(sdk.KindQuantizer): wire.Plugin{NewClient: quantizer},
		string(sdk.KindOptimizer): wire.Plugin{NewClient: optimizer},
	}}
}

// NewQuantizer returns a client for the quantizer at the other end of conn.
func NewQuantizer(conn grpc.ClientConnInterface) *Quantizer {
	return &Quantizer{pb.NewQuantizerClient(conn)}
}

// NewOptimizer returns a client for the optimizer at the other end of conn.
func NewOptimizer(conn grpc.ClientConnInterface) *Optimizer {
	return &Optimizer{pb.NewOptimizerClient(conn)}
}

// Errors of this package; test for them with errors.Is. A plugin's refusal is a
// [*sdk.Refusal], as in the plugin's process.
var (
	// ErrAnswer means that an answer breaks the protocol: it is undecodable, incomplete, or
	// contains an invalid program.
	ErrAnswer = errors.New("the answer breaks the plugin protocol")
	// ErrVersion means a version mismatch: the plugin or this host is too old for the other.
	ErrVersion = errors.New("the plugin and this host have incompatible versions")
)

// Mistake is a failure of the plugin's own code: a panic, a program that cannot be
// built, or any error other than a refusal.
type Mistake struct{ Text string }

// Error returns the plugin's message.
func (e *Mistake) Error() string { return e.Text }
