# How far sysprep is, after seal.ps1. Changes nothing and needs no settings. While sysprep runs, the machine may or may
# not answer; when it has finished, the machine is off.
. (Join-Path $PSScriptRoot 'common.ps1')

Invoke-Step {
    $logs = 'C:\Windows\System32\Sysprep\Panther'
    # Get-Content adds properties to each line, and ConvertTo-Json would write objects (PowerShell's issue 6458)
    $errors = @(Get-Content -LiteralPath "$logs\setuperr.log" -Tail 20 -ErrorAction SilentlyContinue |
        ForEach-Object { "$_" })
    # the app that sysprep refuses: this line may be only in its other log, or before the last lines
    if ("$errors" -match '3cf2') {
        $apps = @(Get-Content -LiteralPath "$logs\setupact.log" -Tail 2000 -ErrorAction SilentlyContinue |
            Where-Object { $_ -match 'was installed for a user' } | ForEach-Object { "$_" } | Select-Object -Unique)
        $errors = @($apps | Where-Object { $errors -notcontains $_ }) + $errors
    }
    $setup = Get-ItemProperty -Path 'HKLM:\SOFTWARE\Microsoft\Windows\CurrentVersion\Setup\State'
    return @{
        running = $null -ne (Get-Process -Name 'sysprep' -ErrorAction SilentlyContinue)
        # this decides, because successful runs have errors in the log, too
        state = "$($setup.ImageState)"
        succeeded = Test-Path -LiteralPath 'C:\Windows\System32\Sysprep\Sysprep_succeeded.tag'
        errors = $errors
    }
}
