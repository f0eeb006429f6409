package client

import (
	"context"
	"fmt"

	"google.golang.org/grpc"

	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/internal/wire"
	pb "github.com/cage-qat/cage/sdk/internal/wire/cage/plugin/v1"
	"github.com/cage-qat/cage/sdk/program"
)

// Quantizer is a quantizer in another process. Its methods may be called
// concurrently.
type Quantizer struct{ rpc pb.QuantizerClient }

// Describe asks what the plugin is and checks the answer. An error is a [*Mistake], wraps
// [ErrAnswer] or [ErrVersion], or is an error of the call itself, as a gRPC status.
func (q *Quantizer) Describe(ctx context.Context) (Info, error) {
	return describe(ctx, q.rpc.Describe)
}

// Quantize asks for the programs of a site and checks them: they are decoded strictly,
// must be valid within the limits, and must have the signatures of a quantizer for that
// shape. The limits hold for each program; the trained parameters together may be as
// large as one value of a program. An error may also be an [*sdk.Refusal]; otherwise
// errors are those of Describe.
func (q *Quantizer) Quantize(ctx context.Context, site sdk.Site, limits program.Limits) (sdk.QuantizerProgram, error) {
	request, err := toSite(site)
	if err != nil {
		return sdk.QuantizerProgram{}, err
	}
	return ask(ctx, q.rpc.Quantize, &pb.QuantizeRequest{Site: request}, fromQuantizeResponse, site.Shape, limits)
}

// Optimizer is an optimizer in another process. Its methods may be called
// concurrently.
type Optimizer struct{ rpc pb.OptimizerClient }

// Describe asks what the plugin is; see [Quantizer.Describe].
func (o *Optimizer) Describe(ctx context.Context) (Info, error) {
	return describe(ctx, o.rpc.Describe)
}

// Program asks for the programs of a parameter tensor and checks them as
// [Quantizer.Quantize] does; the state is checked like the trained parameters there.
// Refresh programs may factorize, and only these, whatever the limits say about it. It is
// not an error if the optimizer declines the tensor.
func (o *Optimizer) Program(ctx context.Context, tensor sdk.Tensor, limits program.Limits) (sdk.OptimizerProgram, error) {
	request, err := toTensor(tensor)
	if err != nil {
		return sdk.OptimizerProgram{}, err
	}
	return ask(ctx, o.rpc.Program, &pb.ProgramRequest{Tensor: request}, fromProgramResponse, tensor.Shape, limits)
}

// method is a generated client method.
type method[Q, R any] func(context.Context, Q, ...grpc.CallOption) (R, error)

// ask makes one call, and reads and checks the programs of the answer.
func ask[Q, R any, P interface{ Check(shape []int) error }](ctx context.Context, f method[Q, R], request Q,
	read func(R, program.Limits) (P, error), shape []int, limits program.Limits) (programs P, err error) {
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

// call makes one call, within the limits of the protocol, and scans the answer.
func call[Q, R any](ctx context.Context, f method[Q, R], request Q) (R, error) {
	codec := wire.NewCodec()
	response, err := f(ctx, request,
		grpc.MaxCallRecvMsgSize(MaxMessage), grpc.MaxCallSendMsgSize(MaxMessage), grpc.ForceCodecV2(codec))
	if codec.Err != nil {
		return response, fmt.Errorf("%w: %w", ErrAnswer, codec.Err)
	}
	return response, fromStatus(err)
}

func describe(ctx context.Context, f method[*pb.DescribeRequest, *pb.DescribeResponse]) (Info, error) {
	response, err := call(ctx, f, &pb.DescribeRequest{ApiVersions: []uint32{APIVersion}})
	if err != nil {
		return Info{}, err
	}
	return fromDescribe(response)
}
