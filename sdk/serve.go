package sdk

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime/debug"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	goplugin "github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"

	"github.com/cage-qat/cage/sdk/internal/wire"
	pb "github.com/cage-qat/cage/sdk/internal/wire/cage/plugin/v1"
)

// ServeQuantizer is the main function of a quantizer plugin. It returns when the host closes the
// plugin. It exits the process if the host has died.
//
// Print nothing to standard output before the call: the host reads the first line there as the
// handshake. Later output on either stream goes to the host's log, as do records of log/slog with
// level and attributes. Started by a user instead of a host, the plugin prints a hint and exits.
func ServeQuantizer(q Quantizer) { serve(q, nil) }

// ServeOptimizer is the main function of an optimizer plugin; see [ServeQuantizer].
func ServeOptimizer(o Optimizer) { serve(nil, o) }

// Serve is the main function of a plugin that is both a quantizer and an optimizer: the
// host asks for the kind that it needs. See [ServeQuantizer].
func Serve(q Quantizer, o Optimizer) { serve(q, o) }

func serve(q Quantizer, o Optimizer) {
	descriptions, err := describe(q, o)
	if os.Getenv(wire.CookieKey) != wire.CookieValue {
		byHand(os.Stderr, os.Args[0], descriptions, err)
		os.Exit(1)
	}
	output := os.Stderr // go-plugin replaces the variable
	logger := newLogger(output)
	if err != nil { // the host also reports it when it requests the description
		logger.Warn("the description is invalid", "error", err)
	}
	watchHost()
	goplugin.Serve(&goplugin.ServeConfig{
		HandshakeConfig: goplugin.HandshakeConfig{
			MagicCookieKey: wire.CookieKey, MagicCookieValue: wire.CookieValue,
		},
		VersionedPlugins: map[int]goplugin.PluginSet{wire.ProtocolVersion: servers(q, o)},
		GRPCServer: func(opts []grpc.ServerOption) *grpc.Server {
			return grpc.NewServer(append(opts, grpc.MaxRecvMsgSize(wire.MaxMessage),
				grpc.MaxSendMsgSize(wire.MaxMessage), grpc.UnaryInterceptor(guard(output, logger)))...)
		},
		Logger: logger.Named("go-plugin"),
	})
}

// describe collects and checks the descriptions of q and o, either of which may be nil. It
// returns an error if one of them is invalid or Describe panicked.
func describe(q Quantizer, o Optimizer) (out map[Kind]Description, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("Describe: panic: %v%s", r, panicSite())
		}
	}()
	out = map[Kind]Description{}
	if q != nil {
		out[KindQuantizer] = q.Describe()
	}
	if o != nil {
		out[KindOptimizer] = o.Describe()
	}
	for _, d := range out {
		if err := d.Check(); err != nil {
			return out, err
		}
	}
	return out, nil
}

func servers(q Quantizer, o Optimizer) goplugin.PluginSet {
	set := goplugin.PluginSet{}
	if q != nil {
		register := func(s *grpc.Server) { pb.RegisterQuantizerServer(s, &quantizerServer{q: q}) }
		set[string(KindQuantizer)] = wire.Plugin{Register: register}
	}
	if o != nil {
		register := func(s *grpc.Server) { pb.RegisterOptimizerServer(s, &optimizerServer{o: o}) }
		set[string(KindOptimizer)] = wire.Plugin{Register: register}
	}
	return set
}

// quantizerServer serves a quantizer. Hosts call AttachSites and Search only for a Searcher.
type quantizerServer struct {
	pb.UnimplementedQuantizerServer
	q                          Quantizer
	attachments[*attachedSite] // in the order of the host's indices
}

func (s *quantizerServer) Describe(
	context.Context, *pb.DescribeRequest,
) (*pb.DescribeResponse, error) {
	var capabilities []string
	if _, ok := s.q.(Searcher); ok {
		capabilities = []string{wire.SearchCapability}
	}
	return describeResponse(s.q.Describe(), capabilities...)
}

func (s *quantizerServer) Quantize(
	_ context.Context, r *pb.QuantizeRequest,
) (*pb.QuantizeResponse, error) {
	site, err := fromSite(r.GetSite())
	if err != nil {
		return nil, wire.ToStatus(wire.Unreadable, err.Error())
	}
	built, err := BuildQuantizer(s.q, site)
	if err != nil {
		return nil, failure(err)
	}
	answer, err := wire.ToQuantizer(built)
	if err != nil {
		return nil, failure(err)
	}
	return &pb.QuantizeResponse{Answer: &pb.QuantizeResponse_Program{Program: answer}}, nil
}

// optimizerServer serves an optimizer. Hosts call Attach and Step only for opaque optimizers.
type optimizerServer struct {
	pb.UnimplementedOptimizerServer
	o Optimizer
	attachments[*attachedTensor]
}

func (s *optimizerServer) Describe(
	context.Context, *pb.DescribeRequest,
) (*pb.DescribeResponse, error) {
	var capabilities []string
	if _, ok := s.o.(opaque); ok {
		capabilities = []string{wire.OpaqueCapability}
	}
	return describeResponse(s.o.Describe(), capabilities...)
}

func (s *optimizerServer) Program(
	_ context.Context, r *pb.ProgramRequest,
) (*pb.ProgramResponse, error) {
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
	if built.Opaque {
		state, err := wire.ToTensors(built.State)
		if err != nil {
			return nil, failure(fmt.Errorf("state %w", err))
		}
		answer := &pb.OpaqueOptimizer{State: state}
		return &pb.ProgramResponse{Answer: &pb.ProgramResponse_Opaque{Opaque: answer}}, nil
	}
	answer, err := wire.ToOptimizer(built)
	if err != nil {
		return nil, failure(err)
	}
	return &pb.ProgramResponse{Answer: &pb.ProgramResponse_Program{Program: answer}}, nil
}

// failure converts an error of the author's code to a gRPC status. The host knows the plugin
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
// os.Stdout and os.Stderr through gRPC, which loses the last output of a crashing plugin.
// From then on both are the standard error, which the host reads directly.
func guard(output *os.File, logger hclog.Logger) grpc.UnaryServerInterceptor {
	var first sync.Once
	return func(
		ctx context.Context, request any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler,
	) (response any, err error) {
		first.Do(func() { os.Stdout, os.Stderr = output, output })
		defer func() {
			if r := recover(); r != nil {
				logger.Error("panic", "method", info.FullMethod, "panic", fmt.Sprint(r),
					"stack", string(debug.Stack()))
				err = failure(fmt.Errorf("panic: %v%s", r, panicSite()))
			}
		}()
		return handler(ctx, request)
	}
}

func byHand(out io.Writer, program string, descriptions map[Kind]Description, err error) {
	if err != nil {
		fmt.Fprintf(out, "the plugin is invalid: %v\n", err)
		return
	}
	for _, kind := range []Kind{KindQuantizer, KindOptimizer} {
		if d, ok := descriptions[kind]; ok {
			fmt.Fprintf(out, "%s is a plugin of cage: the %s %s. Name it in a run's TOML file, and cage "+
				"starts it.\n", filepath.Base(program), kind, d.Name)
		}
	}
	fmt.Fprintf(out, "To see its parameters: cage plugins show %s\n", program)
}

// watchHost exits the process when the host has ended. It detects this by the pipe on standard
// input, which closes, or, if another process still holds the pipe open, by a change of the parent
// process.
func watchHost() {
	if os.Getenv(wire.ParentPipeKey) == wire.ParentPipeStdin {
		go func() {
			_, _ = io.Copy(io.Discard, os.Stdin)
			os.Exit(0)
		}()
	}
	go func() {
		for parent := os.Getppid(); ; time.Sleep(500 * time.Millisecond) {
			if os.Getppid() != parent {
				os.Exit(0)
			}
		}
	}()
}
