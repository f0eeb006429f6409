// Errors, and events, each of which is NULL if all went well, else the error.

#define _GNU_SOURCE
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "record.h"

PJRT_Error* fail(PJRT_Error_Code code, const char* format, ...) {
	PJRT_Error* error = malloc(sizeof *error);
	va_list values;
	va_start(values, format);
	error->code = code;
	if (vasprintf(&error->message, format, values) < 0) abort();
	va_end(values);
	return error;
}

void error_message(PJRT_Error_Message_Args* args) {
	args->message = args->error->message;
	args->message_size = strlen(args->error->message);
}

PJRT_Error* error_code(PJRT_Error_GetCode_Args* args) {
	args->code = args->error->code;
	return NULL;
}

void destroy_error(PJRT_Error_Destroy_Args* args) {
	free(args->error->message);
	free(args->error);
}

PJRT_Error* await_event(PJRT_Event_Await_Args* args) {
	PJRT_Error* error = (PJRT_Error*)args->event;
	return error ? fail(error->code, "%s", error->message) : NULL;
}

PJRT_Error* destroy_event(PJRT_Event_Destroy_Args* args) {
	PJRT_Error_Destroy_Args error = {.error = (PJRT_Error*)args->event};
	if (error.error) destroy_error(&error);
	return NULL;
}
