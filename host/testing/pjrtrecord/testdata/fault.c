// Faults that the environment asks for. CAGE_RECORD_FAULT is EVENT|AFTER|CODE|TEXT|MESSAGE:
// of the events (client, compile or execute) whose program contains TEXT, all but the first
// AFTER fail with the code of a PJRT error and the message. The message "hang" means that
// the call returns when the variable changes, "abort" that the process ends, and "wait N" that it goes well after N milliseconds.

#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "record.h"

PJRT_Error* injected(const char* event, const char* program) {
	static int seen;
	const char* setting = getenv("CAGE_RECORD_FAULT");
	if (!setting || !*setting) return NULL;
	char* rule = strdup(setting);
	char* whole = strdup(setting);
	char* parts[5];
	char* rest = rule;
	for (int i = 0; i < 5; i++) {
		parts[i] = i < 4 ? strsep(&rest, "|") : rest;
		if (!parts[i]) abort(); // a rule has five parts
	}
	PJRT_Error* error = NULL;
	if (!strcmp(event, parts[0]) && strstr(program, parts[3]) && seen++ >= atoi(parts[1])) {
		int wait = 0;
		if (!strcmp(parts[4], "hang"))
			while (getenv("CAGE_RECORD_FAULT") && !strcmp(getenv("CAGE_RECORD_FAULT"), whole)) usleep(10000);
		if (!strcmp(parts[4], "abort")) abort();
		if (sscanf(parts[4], "wait %d", &wait) == 1)
			usleep(1000 * wait);
		else
			error = fail(atoi(parts[2]), "%s", parts[4]);
	}
	free(rule);
	free(whole);
	return error;
}
