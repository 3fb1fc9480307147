/* The "Press any key" program of the stand-in media: does what efisys.bin of Windows media does.
 *
 * It asks, waits five seconds for a key, and gives up by returning to the firmware, which then tries its next boot
 * option. After a key it starts \EFI\BOOT\GRUBX64.EFI of the volume that it was itself loaded from.
 */
#include <efi.h>
#include <efilib.h>

#define POLL_US 100000
#define SECONDS 5

static BOOLEAN key_came(EFI_SYSTEM_TABLE *table)
{
    EFI_INPUT_KEY key;
    int tick;

    /* a key that was pressed earlier, for something else, must not count */
    while (!EFI_ERROR(uefi_call_wrapper(table->ConIn->ReadKeyStroke, 2, table->ConIn, &key)))
        ;
    for (tick = 0; tick < SECONDS * 1000000 / POLL_US; tick++) {
        if (!EFI_ERROR(uefi_call_wrapper(table->ConIn->ReadKeyStroke, 2, table->ConIn, &key)))
            return TRUE;
        if (tick % (1000000 / POLL_US) == 0)
            Print(L".");
        uefi_call_wrapper(table->BootServices->Stall, 1, POLL_US);
    }
    return FALSE;
}

EFI_STATUS EFIAPI efi_main(EFI_HANDLE image, EFI_SYSTEM_TABLE *table)
{
    EFI_LOADED_IMAGE *self;
    EFI_DEVICE_PATH *path;
    EFI_HANDLE next;
    EFI_STATUS status;

    InitializeLib(image, table);
    Print(L"Press any key to boot from CD or DVD");
    if (!key_came(table)) {
        Print(L"\r\n");
        return EFI_TIMEOUT;
    }
    Print(L"\r\n");
    status = uefi_call_wrapper(table->BootServices->HandleProtocol, 3, image, &LoadedImageProtocol, (void **)&self);
    if (EFI_ERROR(status))
        return status;
    path = FileDevicePath(self->DeviceHandle, L"\\EFI\\BOOT\\GRUBX64.EFI");
    status = uefi_call_wrapper(table->BootServices->LoadImage, 6, FALSE, image, path, NULL, 0, &next);
    if (EFI_ERROR(status))
        return status;
    return uefi_call_wrapper(table->BootServices->StartImage, 3, next, NULL, NULL);
}
