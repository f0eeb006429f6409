package wire_test

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/cage-qat/cage/internal/testing/randprog"
	"github.com/cage-qat/cage/sdk/internal/wire"
	pb "github.com/cage-qat/cage/sdk/internal/wire/cage/plugin/v1"
	"github.com/cage-qat/cage/sdk/program"
)

// Fields that are not known are found wherever they are.
func TestUnknownFields(t *testing.T) {
	packed := func(field protowire.Number, content []byte) []byte {
		return protowire.AppendBytes(protowire.AppendTag(nil, field, protowire.BytesType), content)
	}
	for says, data := range map[string][]byte{
		"Program has a field": packed(15, nil),
		"Type has a field":    packed(2, packed(2, packed(9, nil))),
		"Attr has a field":    packed(3, packed(4, packed(15, nil))),
		"":                    packed(3, packed(4, packed(1, []byte{1}))),
	} {
		var m pb.Program
		if err := proto.Unmarshal(data, &m); err != nil {
			t.Fatal(err)
		}
		err := wire.CheckKnown(m.ProtoReflect())
		if (err == nil) != (says == "") || err != nil && !strings.Contains(err.Error(), says) {
			t.Errorf("got %v, want %q", err, says)
		}
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
