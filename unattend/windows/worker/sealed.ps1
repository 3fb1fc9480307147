# How far sysprep is, after seal.ps1. Changes nothing and needs no settings. While it is at work the machine may answer
# or not; when it is done the machine is off.
. (Join-Path $PSScriptRoot 'common.ps1')

Invoke-Step {
    $log = 'C:\Windows\System32\Sysprep\Panther\setuperr.log'
    $errors = @()
    # Get-Content hangs properties on each line, and ConvertTo-Json would write objects (PowerShell's issue 6458)
    if (Test-Path -LiteralPath $log) { $errors = @(Get-Content -LiteralPath $log -Tail 20 | ForEach-Object { "$_" }) }
    $setup = Get-ItemProperty -Path 'HKLM:\SOFTWARE\Microsoft\Windows\CurrentVersion\Setup\State'
    return @{
        running = $null -ne (Get-Process -Name 'sysprep' -ErrorAction SilentlyContinue)
        # what counts: successful runs have errors in the log, too
        state = "$($setup.ImageState)"
        succeeded = Test-Path -LiteralPath 'C:\Windows\System32\Sysprep\Sysprep_succeeded.tag'
        errors = $errors
    }
}
