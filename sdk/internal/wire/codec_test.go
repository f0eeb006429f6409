package wire_test

import (
	"strings"
	"testing"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/cage-qat/cage/internal/testing/randprog"
	"github.com/cage-qat/cage/sdk/internal/wire"
	pb "github.com/cage-qat/cage/sdk/internal/wire/cage/plugin/v1"
	"github.com/cage-qat/cage/sdk/program"
)

func TestDecodeRefuses(t *testing.T) {
	packed := func(field protowire.Number, content []byte) []byte {
		return protowire.AppendBytes(protowire.AppendTag(nil, field, protowire.BytesType), content)
	}
	cases := []struct {
		name string
		data []byte
		says string
	}{
		{"a truncated tag", []byte{0x80}, "Program: broken encoding"},
		{"a truncated string", []byte{1<<3 | 2, 9, 'x'}, "Program: broken encoding"},
		{"an unknown field", packed(15, nil), "Program has field 15"},
		{"a wrong wire type", protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType),
			7), "Program has field 1 (wire type 0)"},
		{"an unknown field inside", packed(2, packed(2, packed(9, nil))), "Type has field 9"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			err := wire.Decode(c.data, &pb.Program{})
			if err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("got %v, want %q", err, c.says)
			}
		})
	}
}

// TestCodec checks a round trip, and that the codec stores the error of Decode.
func TestCodec(t *testing.T) {
	sent := &pb.DescribeRequest{ApiVersions: []uint32{1, 2}}
	codec := wire.NewCodec()
	data, err := codec.Marshal(sent)
	if err != nil {
		t.Fatal(err)
	}
	var got pb.DescribeRequest
	if err := codec.Unmarshal(data, &got); err != nil || !proto.Equal(sent, &got) {
		t.Errorf("got %v, %v", &got, err)
	}
	bad := mem.BufferSlice{mem.SliceBuffer{0x80}, mem.SliceBuffer{0x80}}
	if err := codec.Unmarshal(bad, &got); err == nil || codec.Err == nil {
		t.Errorf("a broken message was decoded: %v, %v", err, codec.Err)
	}
}

// FuzzProgram checks that any bytes are refused or give a usable program.
func FuzzProgram(f *testing.F) {
	for seed := range uint64(20) {
		data, err := proto.Marshal(
			wire.ToProgram(randprog.New(seed, randprog.Options{Nodes: 12, Ops: everyOp()}).Program))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Add([]byte{})
	f.Add([]byte{3<<3 | 2, 0})
	f.Fuzz(func(t *testing.T, data []byte) {
		var m pb.Program
		if wire.Decode(data, &m) != nil {
			return
		}
		p, err := wire.FromProgram(&m)
		if err != nil {
			return
		}
		_ = p.String() // must not panic, even if the program is invalid
		if p.Validate(program.Limits{Linalg: true}) != nil {
			return
		}
		again, err := wire.FromProgram(wire.ToProgram(p))
		if err != nil {
			t.Fatalf("a valid program does not travel: %v\n%s", err, p)
		}
		if again.Hash() != p.Hash() {
			t.Fatalf("the hash changed:\n%s\n%s", p, again)
		}
	})
}
