// Types of tensors, as programs and PJRT write them.

#include <stdlib.h>
#include <string.h>

#include "record.h"

static const struct {
	const char* name;
	PJRT_Buffer_Type type;
	size_t size;
} types[] = {
	{"i1", PJRT_Buffer_Type_PRED, 1},  {"i8", PJRT_Buffer_Type_S8, 1},	 {"i16", PJRT_Buffer_Type_S16, 2},
	{"i32", PJRT_Buffer_Type_S32, 4},  {"i64", PJRT_Buffer_Type_S64, 8}, {"ui8", PJRT_Buffer_Type_U8, 1},
	{"ui32", PJRT_Buffer_Type_U32, 4}, {"f32", PJRT_Buffer_Type_F32, 4}, {"f64", PJRT_Buffer_Type_F64, 8},
	{"ui64", PJRT_Buffer_Type_U64, 8}, {"bf16", PJRT_Buffer_Type_BF16, 2},
};

// read_shape reads a type like tensor<2x3xf32>, from behind the bracket.
static Shape read_shape(const char* text) {
	Shape shape = {PJRT_Buffer_Type_INVALID};
	char* end;
	for (long dim = strtol(text, &end, 10); end != text && shape.rank < MAX_RANK; dim = strtol(text, &end, 10)) {
		shape.dims[shape.rank++] = dim;
		text = end + 1;
	}
	for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
		size_t length = strlen(types[i].name);
		if (!strncmp(text, types[i].name, length) && text[length] == '>') shape.type = types[i].type;
	}
	return shape;
}

void read_outputs(Program* program, const char* text) {
	static const char tensor[] = "tensor<";
	const char* at = strstr(text, "@main(");
	at = at ? strstr(at, ") -> ") : NULL;
	const char* end = at ? strchr(at, '\n') : NULL;
	while (at && (at = strstr(at, tensor)) && at < end && program->outputs < MAX_OUTPUTS) {
		at += sizeof tensor - 1;
		program->shapes[program->outputs++] = read_shape(at);
	}
}

size_t size_of(const Shape* shape) {
	size_t size = 0;
	for (size_t i = 0; i < sizeof types / sizeof *types; i++)
		if (types[i].type == shape->type) size = types[i].size;
	for (size_t i = 0; i < shape->rank; i++) size *= shape->dims[i];
	return size;
}
