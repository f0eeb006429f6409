package sdk_test

import (
	"errors"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/client"
	"github.com/cage-qat/cage/sdk/internal/wire"
	pb "github.com/cage-qat/cage/sdk/internal/wire/cage/plugin/v1"
	"github.com/cage-qat/cage/sdk/program"
)

// FuzzDescribeAnswer checks that any answer is either refused, or a description that accepts its
// own defaults and does not change when sent again.
func FuzzDescribeAnswer(f *testing.F) {
	for _, d := range []sdk.Description{
		{Name: "a", Doc: "doc"},
		{Name: "all", Version: "1.2", Parameters: []sdk.Parameter{
			sdk.Int("bits", 4, 2, 8, "bits"), sdk.Float("c", 0.5, 0, math.Inf(1), ""),
			sdk.Bool("on", true, ""),
			sdk.Choice("form", "paper", []string{"paper", "official"}, ""), sdk.String("free", "é", "")}},
	} {
		m, err := sdk.DescribeResponse(d)
		if err != nil {
			f.Fatal(err)
		}
		f.Add([]byte(encode(f, m)))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		info, err := client.NewQuantizer(replay(data)).Describe(t.Context())
		if err != nil {
			if !errors.Is(err, client.ErrAnswer) && !errors.Is(err, client.ErrVersion) {
				t.Fatalf("not that of an answer: %v", err)
			}
			return
		}
		if _, err := info.Resolve(nil); err != nil {
			t.Fatalf("its own defaults are refused: %v", err)
		}
		_ = info.String()
		m, err := sdk.DescribeResponse(info)
		if err != nil {
			t.Fatal(err)
		}
		again, err := client.NewQuantizer(encode(t, m)).Describe(t.Context())
		if err != nil {
			t.Fatalf("a description does not travel: %v", err)
		}
		if diff := cmp.Diff(info, again, cmpopts.EquateEmpty()); diff != "" {
			t.Fatalf("the description changed:\n%s", diff)
		}
	})
}

// FuzzQuantizeRequest checks that a plugin answers any request with programs that are valid for the
// site, or with an error.
func FuzzQuantizeRequest(f *testing.F) {
	for _, shape := range [][]uint32{{2, 8}, {1}, nil, {0, 3}, {1 << 31}} {
		f.Add([]byte(encode(f, &pb.QuantizeRequest{Site: &pb.Site{Role: 1, Name: "w", Shape: shape}})))
	}
	f.Add([]byte{})
	server := sdk.NewQuantizerServer(steps)
	f.Fuzz(func(t *testing.T, data []byte) {
		var request pb.QuantizeRequest
		codec := wire.NewCodec()
		if codec.Unmarshal(mem.BufferSlice{mem.SliceBuffer(data)}, &request) != nil {
			return
		}
		elements := 1.0
		for _, n := range request.GetSite().GetShape() {
			elements *= float64(n)
		}
		if elements > 1<<16 {
			return // building its programs takes too long for a test
		}
		answer, err := server.Quantize(t.Context(), &request)
		if err != nil {
			return
		}
		site := request.GetSite()
		shape := make([]int, len(site.GetShape()))
		for i, n := range site.GetShape() {
			shape[i] = int(n)
		}
		out, err := client.NewQuantizer(encode(t, answer)).Quantize(t.Context(),
			sdk.Site{Role: sdk.RoleWeight, Name: "w", Shape: shape}, program.Limits{})
		if err != nil {
			t.Fatalf("the answer for %v is refused: %v", proto.MarshalOptions{}.Size(site), err)
		}
		if err := out.Check(shape); err != nil {
			t.Fatal(err)
		}
	})
}
