/*
 * powrprof.dll of the stand-in: what Wine 10 lacks for kubeadm.exe, kubelet.exe and containerd.exe.
 *
 * Why here: Go's runtime loads powrprof.dll in every program, before anything else (to notice suspend and resume).
 * Go programs find all other functions of Windows by kernel32's GetProcAddress. So when this DLL is loaded, it puts its
 * own GetProcAddress into the program's import table, which returns its own functions for these:
 *
 *   CreateSymbolicLinkW       Wine refuses. Here: the file is copied (kubelet.exe links its current certificate).
 *   WSASocketW, bind,         Wine has no AF_UNIX sockets. Here: a TCP socket on a free port of 127.0.0.1, which still
 *   getsockname               reports the name of the file (kubelet.exe's sockets for plug-ins and pod resources).
 *   GetAdaptersAddresses      Wine 10 fails if prefixes are requested. Here: they are not requested.
 *   NtQuerySystemInformation  Go's "am I a service?" needs the parent, services.exe, in session 0; Wine says 1.
 *   GetTokenInformation       Wine's token is not elevated, but kubeadm.exe's preflight needs an administrator.
 *
 * What this hides is listed in docs/evidence.md.
 */
#include "windows.h"

#define AF_UNIX 1
#define AF_INET 2
#define IPPROTO_TCP 6
#define UNIX_ADDRESS 110 /* bytes of sockaddr_un: family and 108 characters */
#define UNIX_SOCKETS 16  /* how many of the last ones are remembered */
#define GAA_FLAG_INCLUDE_PREFIX 0x10u
#define SYSTEM_PROCESS_INFORMATION 5
#define SESSION_OFFSET 0x64 /* SessionId in SYSTEM_PROCESS_INFORMATION */
#define TOKEN_ELEVATION 20
#define PAGE_READWRITE 4

typedef QWORD SOCKET;
typedef HANDLE(WINAPI *GetProcAddress_t)(HANDLE, const char *);
typedef SOCKET(WINAPI *WSASocketW_t)(int, int, int, void *, DWORD, DWORD);
typedef int(WINAPI *bind_t)(SOCKET, const void *, int);
typedef int(WINAPI *getsockname_t)(SOCKET, void *, int *);
typedef DWORD(WINAPI *GetAdaptersAddresses_t)(DWORD, DWORD, void *, void *, DWORD *);
typedef DWORD(WINAPI *NtQuerySystemInformation_t)(DWORD, void *, DWORD, DWORD *);
typedef BOOL(WINAPI *GetTokenInformation_t)(HANDLE, DWORD, void *, DWORD, DWORD *);

extern BOOL WINAPI CopyFileW(const WCHAR *from, const WCHAR *to, BOOL keep);
extern HANDLE WINAPI GetModuleHandleW(const WCHAR *name);
extern BOOL WINAPI VirtualProtect(void *address, QWORD size, DWORD protection, DWORD *old);

/* Wine's own functions, as found */
static GetProcAddress_t real_GetProcAddress;
static WSASocketW_t real_WSASocketW;
static bind_t real_bind;
static getsockname_t real_getsockname;
static GetAdaptersAddresses_t real_GetAdaptersAddresses;
static NtQuerySystemInformation_t real_NtQuerySystemInformation;
static GetTokenInformation_t real_GetTokenInformation;

static struct {
	SOCKET socket;
	unsigned char address[UNIX_ADDRESS];
} named[UNIX_SOCKETS];
static unsigned names;

static BOOLEAN WINAPI copy_instead_of_link(const WCHAR *link, const WCHAR *target, DWORD flags)
{
	(void)flags;
	return CopyFileW(target, link, 1) ? 1 : 0;
}

static SOCKET WINAPI tcp_instead_of_unix(int family, int type, int protocol, void *info, DWORD group, DWORD flags)
{
	if (family == AF_UNIX) {
		family = AF_INET;
		protocol = IPPROTO_TCP;
		info = 0;
	}
	return real_WSASocketW(family, type, protocol, info, group, flags);
}

static int WINAPI bind_to_loopback(SOCKET socket, const void *address, int length)
{
	static const unsigned char loopback[16] = {AF_INET, 0, 0, 0, 127, 0, 0, 1};

	if (*(const unsigned short *)address == AF_UNIX) {
		unsigned slot = names++ % UNIX_SOCKETS;

		named[slot].socket = socket;
		for (int i = 0; i < UNIX_ADDRESS; i++)
			named[slot].address[i] = i < length ? ((const unsigned char *)address)[i] : 0;
		address = loopback;
		length = sizeof(loopback);
	}
	return real_bind(socket, address, length);
}

static int WINAPI remembered_name(SOCKET socket, void *address, int *length)
{
	for (int slot = 0; slot < UNIX_SOCKETS; slot++)
		if (named[slot].socket == socket && *length >= UNIX_ADDRESS) {
			for (int i = 0; i < UNIX_ADDRESS; i++)
				((unsigned char *)address)[i] = named[slot].address[i];
			*length = UNIX_ADDRESS;
			return 0;
		}
	return real_getsockname(socket, address, length);
}

static DWORD WINAPI adapters_without_prefixes(DWORD family, DWORD flags, void *reserved, void *addresses, DWORD *size)
{
	return real_GetAdaptersAddresses(family, flags & ~GAA_FLAG_INCLUDE_PREFIX, reserved, addresses, size);
}

static DWORD WINAPI processes_in_session_0(DWORD kind, void *buffer, DWORD size, DWORD *used)
{
	DWORD status = real_NtQuerySystemInformation(kind, buffer, size, used);

	if (kind == SYSTEM_PROCESS_INFORMATION && status == ERROR_SUCCESS) {
		unsigned char *entry = buffer;

		for (;;) {
			DWORD next = *(DWORD *)entry;

			*(DWORD *)(entry + SESSION_OFFSET) = 0;
			if (!next)
				break;
			entry += next;
		}
	}
	return status;
}

static BOOL WINAPI elevated_token(HANDLE token, DWORD kind, void *buffer, DWORD size, DWORD *used)
{
	BOOL done = real_GetTokenInformation(token, kind, buffer, size, used);

	if (done && kind == TOKEN_ELEVATION && size >= sizeof(DWORD))
		*(DWORD *)buffer = 1;
	return done;
}

static BOOL same(const char *one, const char *other)
{
	while (*one && *one == *other)
		one++, other++;
	return *one == *other;
}

/* Keep Wine's function and return ours, if it is the requested one. */
#define REPLACE(function, ours)                                                                                        \
	if (same(name, #function)) {                                                                                   \
		real_##function = (function##_t)found;                                                                 \
		return (HANDLE)ours;                                                                                   \
	}

static HANDLE WINAPI our_GetProcAddress(HANDLE module, const char *name)
{
	HANDLE found = real_GetProcAddress(module, name);

	if (!found || (QWORD)name < 65536) /* below that it is a number, not a name */
		return found;
	if (same(name, "CreateSymbolicLinkW"))
		return (HANDLE)copy_instead_of_link;
	REPLACE(WSASocketW, tcp_instead_of_unix)
	REPLACE(bind, bind_to_loopback)
	REPLACE(getsockname, remembered_name)
	REPLACE(GetAdaptersAddresses, adapters_without_prefixes)
	REPLACE(NtQuerySystemInformation, processes_in_session_0)
	REPLACE(GetTokenInformation, elevated_token)
	return found;
}

/* Put our GetProcAddress into the import table of the program (Microsoft, "PE Format", sections .idata). */
static void hook(void)
{
	unsigned char *base = GetModuleHandleW(0);
	unsigned char *headers = base + *(DWORD *)(base + 0x3c);
	DWORD imports = *(DWORD *)(headers + 24 + 120); /* the import table's entry of the optional header */

	if (!imports)
		return;
	/* Descriptors of five DWORDs: names, time, forwarders, the DLL's name, addresses; the last one is empty */
	for (DWORD *dll = (DWORD *)(base + imports); dll[3]; dll += 5) {
		QWORD *name = (QWORD *)(base + (dll[0] ? dll[0] : dll[4]));
		QWORD *address = (QWORD *)(base + dll[4]);

		for (; *name; name++, address++) {
			DWORD old;

			/* The top bit: imported by number. Otherwise a hint of two bytes, then the name */
			if (*name >> 63 || !same((char *)base + *name + 2, "GetProcAddress"))
				continue;
			VirtualProtect(address, sizeof(*address), PAGE_READWRITE, &old);
			real_GetProcAddress = (GetProcAddress_t)*address;
			*address = (QWORD)our_GetProcAddress;
			VirtualProtect(address, sizeof(*address), old, &old);
		}
	}
}

/* Go's runtime loads this DLL for this function: it never reports a suspend, which is true for a virtual machine. */
EXPORT DWORD PowerRegisterSuspendResumeNotification(DWORD flags, HANDLE recipient, HANDLE *registration)
{
	(void)flags, (void)recipient;
	*registration = (HANDLE)1;
	return ERROR_SUCCESS;
}

EXPORT DWORD PowerUnregisterSuspendResumeNotification(HANDLE registration)
{
	(void)registration;
	return ERROR_SUCCESS;
}

BOOL WINAPI DllMainCRTStartup(HANDLE module, DWORD reason, void *reserved)
{
	(void)module, (void)reserved;
	if (reason == DLL_PROCESS_ATTACH)
		hook();
	return 1;
}
