/*
 * pdh.dll of the stand-in: performance counters for kubelet.exe.
 *
 * kubelet.exe asks PDH (Performance Data Helper) for the counters of memory, processor and network for the
 * node's statistics, and ends if a counter can't be added. Wine's own pdh.dll knows only the processor and the
 * uptime. Here every counter can be added. Memory is what the machine really has; the processor's load is always 5
 * percent, everything else is 0.
 */
#include "windows.h"

#define PDH_MORE_DATA 0x800007D2u
#define PROCESSOR_LOAD 5.0

typedef struct {
	DWORD status;
	double value;
} PDH_FMT_COUNTERVALUE; /* as read with PDH_FMT_DOUBLE, the only format that kubelet.exe asks for */

typedef struct {
	WCHAR *name;
	PDH_FMT_COUNTERVALUE counter;
} PDH_FMT_COUNTERVALUE_ITEM;

typedef struct {
	DWORD length, load;
	QWORD total_physical, free_physical, total_page, free_page, total_virtual, free_virtual, free_extended;
} MEMORYSTATUSEX;

extern BOOL WINAPI GlobalMemoryStatusEx(MEMORYSTATUSEX *status);

/* A counter's handle is its kind. */
enum kind { MEMORY = 1, PROCESSOR, OTHER };

/* The linker requires this for code that uses floating point. */
int _fltused = 0;

static const WCHAR *skip(const WCHAR *text, const char *prefix)
{
	while (*prefix)
		if (*text++ != (WCHAR)*prefix++)
			return 0;
	return text;
}

static enum kind kind_of(const WCHAR *path)
{
	if (skip(path, "\\Memory\\") || skip(path, "\\Process("))
		return MEMORY;
	if (skip(path, "\\Processor"))
		return PROCESSOR;
	return OTHER;
}

static double value_of(HANDLE counter)
{
	if (counter == (HANDLE)MEMORY) {
		MEMORYSTATUSEX status = {.length = sizeof(status)};
		GlobalMemoryStatusEx(&status);
		return (double)(long long)(status.total_physical - status.free_physical);
	}
	return counter == (HANDLE)PROCESSOR ? PROCESSOR_LOAD : 0.0;
}

EXPORT DWORD PdhOpenQuery(const WCHAR *source, QWORD user, HANDLE *query)
{
	(void)source, (void)user;
	*query = (HANDLE)1;
	return ERROR_SUCCESS;
}

EXPORT DWORD PdhOpenQueryW(const WCHAR *source, QWORD user, HANDLE *query)
{
	return PdhOpenQuery(source, user, query);
}

EXPORT DWORD PdhCloseQuery(HANDLE query)
{
	(void)query;
	return ERROR_SUCCESS;
}

EXPORT DWORD PdhCollectQueryData(HANDLE query)
{
	(void)query;
	return ERROR_SUCCESS;
}

EXPORT DWORD PdhValidatePathW(const WCHAR *path)
{
	(void)path;
	return ERROR_SUCCESS;
}

EXPORT DWORD PdhAddEnglishCounterW(HANDLE query, const WCHAR *path, QWORD user, HANDLE *counter)
{
	(void)query, (void)user;
	*counter = (HANDLE)(QWORD)kind_of(path);
	return ERROR_SUCCESS;
}

EXPORT DWORD PdhAddCounterW(HANDLE query, const WCHAR *path, QWORD user, HANDLE *counter)
{
	return PdhAddEnglishCounterW(query, path, user, counter);
}

EXPORT DWORD PdhGetFormattedCounterValue(HANDLE counter, DWORD format, DWORD *type, PDH_FMT_COUNTERVALUE *value)
{
	(void)format, (void)type;
	value->status = ERROR_SUCCESS;
	value->value = value_of(counter);
	return ERROR_SUCCESS;
}

/* Counters of many instances ("*"): one instance, "_Total". */
EXPORT DWORD PdhGetFormattedCounterArrayW(HANDLE counter, DWORD format, DWORD *size, DWORD *count,
					  PDH_FMT_COUNTERVALUE_ITEM *items)
{
	static WCHAR total[] = {'_', 'T', 'o', 't', 'a', 'l', 0};
	DWORD given = *size;

	(void)format;
	*count = 1;
	*size = sizeof(*items);
	if (given < sizeof(*items))
		return PDH_MORE_DATA;
	items->name = total;
	items->counter.status = ERROR_SUCCESS;
	items->counter.value = value_of(counter);
	return ERROR_SUCCESS;
}

BOOL WINAPI DllMainCRTStartup(HANDLE module, DWORD reason, void *reserved)
{
	(void)module, (void)reason, (void)reserved;
	return 1;
}
