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

func TestUnknownFields(t *testing.T) {
	packed := func(field protowire.Number, content []byte) []byte {
		return protowire.AppendBytes(protowire.AppendTag(nil, field, protowire.BytesType), content)
	}
	for name, c := range map[string]struct {
		data []byte
		says string
	}{
		"at the top":        {packed(15, nil), "Program has a field that this version does not know"},
		"a wrong wire type": {protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), 7), "Program has a field"},
		"in an element":     {packed(2, packed(2, packed(9, nil))), "Type has a field"},
	} {
		var m pb.Program
		err := wire.NewCodec().Unmarshal(mem.BufferSlice{mem.SliceBuffer(c.data)}, &m)
		if err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want %q", name, err, c.says)
		}
	}
	var values pb.Site
	data := packed(4, append(packed(1, []byte("bits")), packed(2, packed(9, nil))...))
	if err := proto.Unmarshal(data, &values); err != nil || len(values.GetValues()) != 1 {
		t.Fatal(err, &values)
	}
	if err := wire.CheckKnown(values.ProtoReflect()); err == nil || !strings.Contains(err.Error(), "Value has a field") {
		t.Errorf("in a map: %v", err)
	}
}

// The codec reports what it refused and otherwise behaves as gRPC's own.
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

// Whatever arrives is refused or becomes a program that can be used.
func FuzzProgram(f *testing.F) {
	for seed := range uint64(20) {
		data, err := proto.Marshal(wire.ToProgram(randprog.New(seed, randprog.Options{Nodes: 12, Ops: everyOp()}).Program))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Add([]byte{})
	f.Add([]byte{3<<3 | 2, 0})
	f.Fuzz(func(t *testing.T, data []byte) {
		var m pb.Program
		if proto.Unmarshal(data, &m) != nil || wire.CheckKnown(m.ProtoReflect()) != nil {
			return
		}
		p, err := wire.FromProgram(&m)
		if err != nil {
			return
		}
		_ = p.String() // a listing of an invalid program does not panic either
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
