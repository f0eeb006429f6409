package sdk

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"sync"

	"github.com/hashicorp/go-hclog"
	goplugin "github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"

	"github.com/cage-qat/cage/sdk/internal/wire"
	pb "github.com/cage-qat/cage/sdk/internal/wire/cage/plugin/v1"
)

// servers are the gRPC services of the quantizer and the optimizer that are given.
func servers(q Quantizer, o Optimizer) goplugin.PluginSet {
	set := goplugin.PluginSet{}
	if q != nil {
		set[string(KindQuantizer)] = &registration{register: func(s *grpc.Server) { pb.RegisterQuantizerServer(s, &quantizerServer{q: q}) }}
	}
	if o != nil {
		set[string(KindOptimizer)] = &registration{register: func(s *grpc.Server) { pb.RegisterOptimizerServer(s, &optimizerServer{o: o}) }}
	}
	return set
}

// registration is the serving half of a go-plugin plugin; the other half lives in
// package client.
type registration struct {
	goplugin.NetRPCUnsupportedPlugin
	register func(*grpc.Server)
}

func (r *registration) GRPCServer(_ *goplugin.GRPCBroker, s *grpc.Server) error {
	r.register(s)
	return nil
}

func (r *registration) GRPCClient(context.Context, *goplugin.GRPCBroker, *grpc.ClientConn) (any, error) {
	return nil, errors.New("this is the plugin's side")
}

type quantizerServer struct {
	pb.UnimplementedQuantizerServer
	q Quantizer
}

func (s *quantizerServer) Describe(context.Context, *pb.DescribeRequest) (*pb.DescribeResponse, error) {
	return describeResponse(s.q.Describe())
}

func (s *quantizerServer) Quantize(_ context.Context, r *pb.QuantizeRequest) (*pb.QuantizeResponse, error) {
	site, err := fromSite(r.GetSite())
	if err != nil {
		return nil, wire.ToStatus(wire.Unreadable, err.Error())
	}
	built, err := BuildQuantizer(s.q, site)
	if err != nil {
		return nil, failure(err)
	}
	answer, err := toQuantizerProgram(built)
	if err != nil {
		return nil, failure(err)
	}
	return &pb.QuantizeResponse{Answer: &pb.QuantizeResponse_Program{Program: answer}}, nil
}

type optimizerServer struct {
	pb.UnimplementedOptimizerServer
	o Optimizer
}

func (s *optimizerServer) Describe(context.Context, *pb.DescribeRequest) (*pb.DescribeResponse, error) {
	return describeResponse(s.o.Describe())
}

func (s *optimizerServer) Program(_ context.Context, r *pb.ProgramRequest) (*pb.ProgramResponse, error) {
	tensor, err := fromTensor(r.GetTensor())
	if err != nil {
		return nil, wire.ToStatus(wire.Unreadable, err.Error())
	}
	built, err := BuildOptimizer(s.o, tensor)
	if err != nil {
		return nil, failure(err)
	}
	if !built.Accepts {
		return &pb.ProgramResponse{Answer: &pb.ProgramResponse_Declined{Declined: &pb.Declined{}}}, nil
	}
	answer, err := toOptimizerProgram(built)
	if err != nil {
		return nil, failure(err)
	}
	return &pb.ProgramResponse{Answer: &pb.ProgramResponse_Program{Program: answer}}, nil
}

// failure makes a gRPC status of an error in the author's code. The host knows the plugin
// and the site, so only the cause is sent, and whether it is a refusal.
func failure(err error) error {
	if site, ok := errors.AsType[*SiteError](err); ok {
		err = site.Err
	}
	reason := wire.Mistaken
	if _, ok := errors.AsType[*Refusal](err); ok {
		reason = wire.Refused
	}
	return wire.ToStatus(reason, err.Error())
}

// guard returns the interceptor that runs every call. It turns a panic into an error.
// Before the first call it also restores the output of the process: go-plugin sends
// os.Stdout and os.Stderr through gRPC, where the last words of a dying plugin are lost.
// From then on both are the standard error, which the host reads directly.
func guard(output *os.File, logger hclog.Logger) grpc.UnaryServerInterceptor {
	var first sync.Once
	return func(ctx context.Context, request any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (response any, err error) {
		first.Do(func() { os.Stdout, os.Stderr = output, output })
		defer func() {
			if r := recover(); r != nil {
				logger.Error("panic", "method", info.FullMethod, "panic", fmt.Sprint(r), "stack", string(debug.Stack()))
				err = failure(fmt.Errorf("panic: %v%s", r, panicSite()))
			}
		}()
		return handler(ctx, request)
	}
}
