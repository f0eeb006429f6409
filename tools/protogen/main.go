// Command protogen writes the enumeration of operations into program.proto, the Go code of the
// plugin protocol, and its message descriptors for Python. It compiles the .proto files itself and
// runs the code generators pinned by go.mod, so that the output is the same on every machine. Files
// are replaced as a whole: make check may compile them meanwhile.
//
// go generate runs it in the directory of package wire. Given names of other .proto files in the
// working directory, it writes only their Go code.
package main

import (
	"bytes"
	"context"
	"fmt"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/bufbuild/protocompile"
	"github.com/bufbuild/protocompile/protoutil"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/pluginpb"

	"github.com/cage-qat/cage/internal/atomicfile"
	"github.com/cage-qat/cage/internal/vfs"
	"github.com/cage-qat/cage/sdk/program"
)

// root is the directory of package wire, from which .proto files are imported.
const root = "."

var files = []string{"cage/plugin/v1/program.proto", "cage/plugin/v1/plugin.proto"}

// forPython is the path of the message descriptors in the Python package.
const forPython = "../../python/cage_sdk/protocol.binpb"

// generators lists tools pinned by go.mod. Each reads a request and returns files.
var generators = []string{"protoc-gen-go", "protoc-gen-go-grpc"}

func main() {
	log.SetFlags(0)
	others := len(os.Args) > 1
	if others {
		files = os.Args[1:]
	} else if err := writeOperations(); err != nil {
		log.Fatalf("protogen: %v", err)
	}
	compiled, err := compile()
	if err != nil {
		log.Fatalf("protogen: %v", err)
	}
	if !others {
		if err := writeDescriptors(compiled); err != nil {
			log.Fatalf("protogen: %v", err)
		}
	}
	request, err := toRequest(compiled)
	if err != nil {
		log.Fatalf("protogen: %v", err)
	}
	for _, g := range generators {
		if err := run(g, request); err != nil {
			log.Fatalf("protogen: %s: %v", g, err)
		}
	}
}

// writeOperations writes the enumeration of operations, taken from package program, into the first
// .proto file.
func writeOperations() error {
	const first, last = "  OP_UNSPECIFIED = 0;\n", "}\n"
	path := filepath.Join(root, files[0])
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	before, rest, ok := strings.Cut(string(text), first)
	_, after, closed := strings.Cut(rest, last)
	if !ok || !closed {
		return fmt.Errorf("%s: there is no enumeration that begins with %q", path, first)
	}
	var list strings.Builder
	class := program.Class(0)
	for _, info := range program.Ops() {
		if info.Class != class {
			list.WriteString("\n")
			class = info.Class
		}
		fmt.Fprintf(&list, "  OP_%s = %d;\n", strings.ToUpper(info.Name), info.Op)
	}
	return atomicfile.WriteBytes(vfs.At(path), []byte(before+first+list.String()+last+after))
}

// compile parses the .proto files, including comments.
func compile() ([]*descriptorpb.FileDescriptorProto, error) {
	compiler := protocompile.Compiler{
		Resolver:       &protocompile.SourceResolver{ImportPaths: []string{root}},
		SourceInfoMode: protocompile.SourceInfoStandard,
	}
	compiled, err := compiler.Compile(context.Background(), files...)
	if err != nil {
		return nil, err
	}
	var out []*descriptorpb.FileDescriptorProto
	for _, f := range compiled {
		out = append(out, protoutil.ProtoFromFileDescriptor(f))
	}
	return out, nil
}

// writeDescriptors writes the compiled files without comments, for libraries that create messages
// from descriptors.
func writeDescriptors(compiled []*descriptorpb.FileDescriptorProto) error {
	set := &descriptorpb.FileDescriptorSet{}
	for _, f := range compiled {
		bare := proto.CloneOf(f)
		bare.SourceCodeInfo = nil
		set.File = append(set.File, bare)
	}
	data, err := proto.MarshalOptions{Deterministic: true}.Marshal(set)
	if err != nil {
		return err
	}
	return atomicfile.WriteBytes(vfs.At(forPython), data)
}

// toRequest returns the input for the generators.
func toRequest(compiled []*descriptorpb.FileDescriptorProto) ([]byte, error) {
	return proto.Marshal(&pluginpb.CodeGeneratorRequest{
		FileToGenerate: files,
		Parameter:      proto.String("paths=source_relative"),
		ProtoFile:      compiled,
	})
}

// run passes the request to a generator and writes the files that the generator returns.
func run(generator string, request []byte) error {
	cmd := exec.Command("go", "tool", generator)
	cmd.Stdin, cmd.Stderr = bytes.NewReader(request), os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return err
	}
	var response pluginpb.CodeGeneratorResponse
	if err := proto.Unmarshal(out, &response); err != nil {
		return err
	}
	if response.Error != nil {
		return fmt.Errorf("%s", response.GetError())
	}
	for _, f := range response.File {
		path := vfs.At(filepath.Join(root, f.GetName()))
		if err := atomicfile.WriteBytes(path, []byte(f.GetContent())); err != nil {
			return err
		}
	}
	return nil
}
