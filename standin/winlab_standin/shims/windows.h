/* What the two shims need of Windows' own header. They are compiled by the host's gcc, which has none. */
#ifndef SHIMS_WINDOWS_H
#define SHIMS_WINDOWS_H

#define WINAPI __attribute__((ms_abi)) /* the calling convention of 64-bit Windows */
#define EXPORT __attribute__((visibility("default"))) WINAPI

typedef unsigned short WCHAR;
typedef int BOOL;
typedef unsigned char BOOLEAN;
typedef unsigned int DWORD;
typedef unsigned long long QWORD;
typedef void *HANDLE;

#define ERROR_SUCCESS 0
#define DLL_PROCESS_ATTACH 1

#endif
